package tokenize

// part is one place of a template: sequence 0 or 1 of the input, or special tokens (sequence -1).
type part struct {
	sequence int
	ids      []int32
	typeID   int32
}

const specialPart = -1

// template is a post-processor: the parts of the answer for a single text and for a pair.
type template struct {
	single, pair           []part
	addedSingle, addedPair int
}

func newTemplate(single, pair []part) *template {
	return &template{single, pair, countAdded(single), countAdded(pair)}
}

func countAdded(parts []part) int {
	n := 0
	for _, p := range parts {
		n += len(p.ids)
	}
	return n
}

// added is how many special tokens the template adds.
func (t *template) added(pair bool) int {
	if pair {
		return t.addedPair
	}
	return t.addedSingle
}

// fill writes the sequences and the special tokens to e.
func (t *template) fill(e *Encoding, pair bool) {
	parts := t.single
	if pair {
		parts = t.pair
	}
	for _, p := range parts {
		for _, id := range p.ids {
			e.add(id, p.typeID, 1, 1, Span{})
		}
		if p.sequence == specialPart {
			continue
		}
		for _, tok := range e.seqs[p.sequence] {
			e.add(tok.id, p.typeID, 1, 0, tok.span)
		}
	}
}
