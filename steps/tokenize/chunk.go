package tokenize

import (
	"context"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tokenizer"
)

// The columns: the values of a row in each output.
const (
	columnIDs = iota
	columnMask
	columnTypes
	columnSpecial
	columnOffsets
	columnWords
	columnSequences
	columns
	// columnSamples is the row of its request that a window belongs to. Chunks have no values for it.
	columnSamples
)

// columnWidth returns how many numbers a token has in a column.
func columnWidth(column int) int {
	if column == columnOffsets {
		return 2
	}
	return 1
}

// padValue returns the value that pads rows to the longest.
func (s *step) padValue(column int) int64 {
	switch column {
	case columnIDs:
		return int64(s.tok.PadID())
	case columnTypes:
		return int64(s.tok.PadTypeID())
	case columnSpecial:
		return 1
	case columnWords, columnSequences:
		return tokenizer.None
	default:
		return 0
	}
}

// chunk is a range of a batch's rows that one goroutine encodes.
type chunk struct {
	enc      tokenizer.Encoding
	from, to int
	columns  [columns][]int32 // the values of the rows, one row after the other
	ends     []int            // 0, then the number of tokens up to the end of each window, which is a row where there are no more
	rows     []int32          // the row of each window
	failed   []failure
	chars    [2][]int32 // the code point number of each byte of the row's texts
}

// failure is a row that cannot be encoded.
type failure struct {
	row int
	err error
}

func (p *chunk) reset(from int) {
	for i := range p.columns {
		p.columns[i] = p.columns[i][:0]
	}
	p.from, p.to, p.ends, p.rows, p.failed = from, from, append(p.ends[:0], 0), p.rows[:0], p.failed[:0]
}

// encodeChunk encodes the rows of p. A row that cannot be encoded stays empty.
func (s *step) encodeChunk(ctx context.Context, j *job, p *chunk) {
	p.enc.TrackOffsets, p.enc.KeepOverflow, p.enc.MaxWindows = s.tracked, s.windows > 0, s.windows
	for row := p.from; row < p.to && ctx.Err() == nil; row++ {
		var pair []byte
		if len(j.pairs) > 0 {
			pair = j.pairs[row]
		}
		if err := s.encode(p, row, j.texts[row], pair, len(j.pairs) > 0); err != nil {
			p.failed = append(p.failed, failure{row, err})
			if s.windows == 0 {
				p.endWindow(row)
			}
		}
	}
}

// encode appends one row to p, or its windows.
func (s *step) encode(p *chunk, row int, text, pair []byte, paired bool) error {
	for port, t := range [...][]byte{portText: text, portPair: pair} {
		if len(t) > s.maxBytes {
			return status.Errorf(status.InvalidArg, "input '%s' has a text of %d bytes, expected at most %d (parameter '%s')",
				inputNames[port], len(t), s.maxBytes, "max_bytes")
		}
	}
	var err error
	if paired {
		err = s.tok.EncodePair(&p.enc, text, pair)
	} else {
		err = s.tok.Encode(&p.enc, text)
	}
	if err != nil {
		return status.Errorf(status.InvalidArg, "input 'TEXT': %v", err)
	}
	n := p.enc.Len()
	if s.limit > 0 && n > s.limit {
		return status.Errorf(status.InvalidArg, "input 'TEXT' has %d tokens, expected at most %d", n, s.limit)
	}
	chars := s.countChars(p, text, pair)
	s.addRow(p, row, &p.enc, chars)
	for _, w := range p.enc.Overflow {
		s.addRow(p, row, w, chars)
	}
	return nil
}

// addRow appends the values of one row, or window.
func (s *step) addRow(p *chunk, row int, e *tokenizer.Encoding, chars [2][]int32) {
	p.add(columnIDs, e.IDs)
	p.add(columnMask, e.Attention)
	p.add(columnTypes, e.TypeIDs)
	if s.more {
		p.add(columnSpecial, e.Special)
		p.add(columnWords, e.Words)
		p.add(columnSequences, e.Sequences)
		s.addOffsets(p, e, chars)
	}
	p.endWindow(row)
}

// endWindow ends a window of a row.
func (p *chunk) endWindow(row int) {
	p.ends, p.rows = append(p.ends, len(p.columns[columnIDs])), append(p.rows, int32(row))
}

func (p *chunk) add(column int, values []int32) {
	p.columns[column] = append(p.columns[column], values...)
}

// countChars numbers the code points of texts. The result is nil for texts whose offsets are bytes, or are ASCII.
func (s *step) countChars(p *chunk, text, pair []byte) (chars [2][]int32) {
	if !s.tracked || s.inBytes {
		return chars
	}
	for i, t := range [...][]byte{text, pair} {
		if !tokenizer.IsASCII(t) {
			p.chars[i] = appendChars(p.chars[i][:0], t)
			chars[i] = p.chars[i]
		}
	}
	return chars
}

// addOffsets appends the offsets, in code points where chars has them and in bytes otherwise.
func (s *step) addOffsets(p *chunk, e *tokenizer.Encoding, chars [2][]int32) {
	if !s.tracked {
		return
	}
	out := p.columns[columnOffsets]
	for i, at := range e.Offsets {
		if which := e.Sequences[i]; which != tokenizer.None && chars[which] != nil {
			at = tokenizer.Span{Start: charAt(chars[which], at.Start), End: charAt(chars[which], at.End)}
		}
		out = append(out, at.Start, at.End)
	}
	p.columns[columnOffsets] = out
}

// appendChars appends the number of code points before each byte of text, and before its end.
func appendChars(dst []int32, text []byte) []int32 {
	n := int32(-1)
	for _, c := range text {
		if utf8.RuneStart(c) {
			n++
		}
		dst = append(dst, n)
	}
	return append(dst, n+1)
}

// charAt returns the number of the code point at a byte. As in the reference, some tokens end after their text.
func charAt(chars []int32, at int32) int32 {
	if int(at) < len(chars) {
		return chars[at]
	}
	return at
}
