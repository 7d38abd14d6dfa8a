'use strict';
(() => {
  const rows = Array.from(document.querySelectorAll('#all tbody tr'));
  const texts = rows.map(row => row.textContent.toLowerCase());
  const query = document.getElementById('q'), bad = document.getElementById('bad'), shown = document.getElementById('shown');
  document.querySelector('.filter').hidden = false;
  const apply = () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => {
      const hit = (!bad.checked || row.className === 'b') && words.every(word => texts[i].includes(word));
      if (row.hidden === hit) row.hidden = !hit;
      if (hit) count++;
    });
    shown.textContent = count.toLocaleString('en') + ' of ' + rows.length.toLocaleString('en') + ' shown';
  };
  let later = 0;
  query.addEventListener('input', () => { clearTimeout(later); later = setTimeout(apply, 120); });
  bad.addEventListener('change', apply);
  apply();
})();
