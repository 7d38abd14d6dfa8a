// The page's address says what is filtered and which case is open, so that a link shows it:
// #where=dtype+%3D%3D+bf16&outcome=FAIL&case=kv%2F...
{
  const keys = ['where', 'section', 'outcome', 'class', 'text', 'rows', 'columns', 'tables', 'case'];

  /**
   * {where: 'dtype == bf16', outcome: 'FAIL', case: 'kv/...'}; '' where the address says nothing. A plain anchor (#matrix)
   * says nothing.
   */
  kvcts.addressed = () => {
    const said = new URLSearchParams(location.hash.includes('=') ? location.hash.slice(1) : '');
    return Object.fromEntries(keys.map(key => [key, said.get(key) || '']));
  };
  /** The address that says this. */
  kvcts.address = state => '#' + new URLSearchParams(keys.filter(key => state[key]).map(key => [key, state[key]]));
  /** Puts it into the address bar; nothing to say leaves a plain anchor alone. */
  kvcts.readdress = state => {
    const now = kvcts.address(state);
    if (now === '#' && !location.hash.includes('=')) return;
    history.replaceState(null, '', now === '#' ? location.pathname + location.search : now);
  };
}
