package tokenizer

// templatePart is one place of a template: sequence 0 or 1 of the input, or special tokens (sequence -1).
type templatePart struct {
	sequence int
	ids      []int32
	typeID   int32
}

const specialPart = -1

// template is a post-processor: the parts of the answer for a single text and for a pair.
type template struct {
	single, pair           []templatePart
	addedSingle, addedPair int
	shift                  [2]int // at which place of its encoding each text starts, for the trims after the template
	flat                   bool   // overflow is of type 0 as well
}

func newTemplate(single, pair []templatePart) *template {
	return &template{single: single, pair: pair, addedSingle: countAdded(single), addedPair: countAdded(pair)}
}

func countAdded(parts []templatePart) int {
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

// fill writes the given ranges of the sequences of from and the special tokens to e. What is not the main part of a
// sequence keeps the type of the sequence.
func (t *template) fill(tok *Tokenizer, e, from *Encoding, at [2]Span, main [2]bool, pair bool) {
	parts := t.single
	if pair {
		parts = t.pair
	}
	for _, p := range parts {
		for _, id := range p.ids {
			e.add(id, p.typeID, 1)
		}
		if p.sequence == specialPart {
			continue
		}
		typeID := p.typeID
		if !main[p.sequence] && !t.flat {
			typeID = int32(p.sequence)
		}
		tokens := from.seqs[p.sequence][at[p.sequence].Start:at[p.sequence].End]
		e.addTokens(tokens, typeID)
		if from.TrackOffsets {
			tok.addTracked(e, from, p.sequence, tokens)
		}
	}
}

// addTracked appends what TrackOffsets asks for of the tokens of a text.
func (t *Tokenizer) addTracked(e, from *Encoding, sequence int, tokens []token) {
	e.Sequences = appendRun(e.Sequences, int32(sequence), len(tokens))
	for i := range tokens {
		span := tokens[i].span
		if len(t.trims) > 0 {
			span = t.trimmed(from, sequence, i, tokens[i])
		}
		e.Offsets, e.Words = append(e.Offsets, span), append(e.Words, tokens[i].word)
	}
}
