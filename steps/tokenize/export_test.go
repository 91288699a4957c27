package tokenize

// Cutter makes words of texts, as the model sees them.
type Cutter struct{ x text }

// Cut appends the normalized words of src to dst, each followed by a line feed.
func (c *Cutter) Cut(dst []byte, t *Tokenizer, src []byte) []byte {
	c.x.reset(0)
	t.normalizer.normalize(&c.x, src, 0)
	t.preTokenizer.split(&c.x, Span{0, int32(len(c.x.buf))})
	for _, w := range c.x.words {
		dst = append(append(dst, c.x.buf[w.Start:w.End]...), '\n')
	}
	return dst
}
