package tensor

// KeptMappings returns the number and total size of the large mappings that p retains for reuse.
func (p *Pool) KeptMappings() (n, size int) {
	p.large.mu.Lock()
	defer p.large.mu.Unlock()
	return len(p.large.free), p.large.kept
}

// OfferedMappings reports for each of the large mappings that p retains, oldest first, whether the system may take its pages.
func (p *Pool) OfferedMappings() (list []bool) {
	p.large.mu.Lock()
	defer p.large.mu.Unlock()
	for _, b := range p.large.free {
		list = append(list, b.empty)
	}
	return list
}
