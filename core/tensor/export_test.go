package tensor

// KeptMappings returns the number and total size of the large mappings that p retains for reuse.
func (p *Pool) KeptMappings() (n, size int) {
	p.large.mu.Lock()
	defer p.large.mu.Unlock()
	return len(p.large.free), p.large.kept
}
