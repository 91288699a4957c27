package tokenizer

// templatePart is one part of a template: sequence 0 or 1 of the input, or special tokens (sequence -1).
type templatePart struct {
	sequence int
	ids      []int32
	typeID   int32
}

const specialPart = -1

// template is a post-processor that adds special tokens: the parts of the encoding of a single text and of a pair. For example, BERT's
// pair is [CLS], sequence 0, [SEP], sequence 1, [SEP].
type template struct {
	single, pair           []templatePart
	addedSingle, addedPair int
	shift                  [2]int // the start of each text in its encoding, for trims after the template
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

// added returns the number of special tokens that the template adds.
func (t *template) added(pair bool) int {
	if pair {
		return t.addedPair
	}
	return t.addedSingle
}

// fill writes the ranges at of from's sequences and the special tokens to e. Windows after the first (not main) have the number of
// the sequence as type id.
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

// addTracked appends Offsets, Words and Sequences for the tokens of a text.
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
