/* In place of libcurl and OpenSSL, which HDF5's driver for S3 calls: nothing here opens a URL. Every call fails; only
 * curl_global_init, which opening the library calls, succeeds. */
#include <stddef.h>

int curl_global_init(long flags) { return (void)flags, 0; }
void curl_global_cleanup(void) {}
void* curl_easy_init(void) { return NULL; }
void curl_easy_cleanup(void* handle) { (void)handle; }
int curl_easy_setopt(void* handle, int option, ...) { return (void)handle, (void)option, 1; }
int curl_easy_perform(void* handle) { return (void)handle, 1; }
void* curl_slist_append(void* list, const char* text) { return (void)list, (void)text, NULL; }
void curl_slist_free_all(void* list) { (void)list; }
const void* EVP_sha256(void) { return NULL; }
unsigned char* HMAC(void) { return NULL; }
unsigned char* SHA256(void) { return NULL; }
