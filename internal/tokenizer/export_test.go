package tokenizer

// Cutter makes words of texts, as the model sees them.
type Cutter struct{ x text }

// Cut appends the normalized words of src to dst, each followed by a line feed.
func (c *Cutter) Cut(dst []byte, t *Tokenizer, src []byte) []byte {
	c.x.reset(0)
	t.normalize(&c.x, src, 0)
	c.x.words = append(c.x.words[:0], word{Span{0, int32(len(c.x.buf))}, noID})
	for _, p := range t.preTokenizers {
		p.split(&c.x)
	}
	for _, w := range c.x.words {
		dst = append(append(dst, c.x.buf[w.at.Start:w.at.End]...), '\n')
	}
	return dst
}
