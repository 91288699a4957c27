package tensor

// KeptMappings returns how many large mappings p keeps for reuse, and their bytes.
func (p *Pool) KeptMappings() (n, size int) {
	p.large.mu.Lock()
	defer p.large.mu.Unlock()
	return len(p.large.free), p.large.kept
}
