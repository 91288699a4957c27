package tokenize

// Words are the normalized words of a text, before the model sees them.
func Words(t *Tokenizer, src string) []string {
	var x text
	t.normalizer.normalize(&x, []byte(src), 0)
	t.preTokenizer.split(&x, Span{0, int32(len(x.buf))})
	out := make([]string, len(x.words))
	for i, w := range x.words {
		out[i] = string(x.buf[w.Start:w.End])
	}
	return out
}

// FirstInvalid is firstInvalid.
var FirstInvalid = firstInvalid
