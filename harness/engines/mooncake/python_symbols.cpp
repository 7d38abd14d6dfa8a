// engine.so is a Python module. Its relocations name data of the interpreter that no transfer ever touches, so any
// address will do. Functions are bound lazily and never called. The plug-in makes these symbols visible before it
// opens the library (library.cpp).
#define DATA(name)                                                  \
  extern "C" __attribute__((visibility("default"))) void* name[64]; \
  void* name[64] = {}

DATA(PyBaseObject_Type);
DATA(PyByteArray_Type);
DATA(PyCFunction_Type);
DATA(PyCapsule_Type);
DATA(PyDict_Type);
DATA(PyExc_BufferError);
DATA(PyExc_FutureWarning);
DATA(PyExc_ImportError);
DATA(PyExc_IndexError);
DATA(PyExc_MemoryError);
DATA(PyExc_OverflowError);
DATA(PyExc_RuntimeError);
DATA(PyExc_SystemError);
DATA(PyExc_TypeError);
DATA(PyExc_ValueError);
DATA(PyFloat_Type);
DATA(PyInstanceMethod_Type);
DATA(PyMemoryView_Type);
DATA(PyMethod_Type);
DATA(PyModule_Type);
DATA(PyObject_GenericGetDict);
DATA(PyObject_GenericSetDict);
DATA(PyProperty_Type);
DATA(PyStaticMethod_Type);
DATA(PyType_Type);
DATA(_Py_FalseStruct);
DATA(_Py_NoneStruct);
DATA(_Py_NotImplementedStruct);
DATA(_Py_TrueStruct);
