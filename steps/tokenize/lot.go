package tokenize

import (
	"context"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tokenizer"
)

// What outputs have of a row.
const (
	columnIDs = iota
	columnMask
	columnTypes
	columnSpecial
	columnOffsets
	columnWords
	columnSequences
	columns
	// columnSamples says which row of its request a window is of. It has no values of its own in a lot.
	columnSamples
)

// columnWidth is how many numbers a token has in a column.
func columnWidth(column int) int {
	if column == columnOffsets {
		return 2
	}
	return 1
}

// filling is what fills rows up to the longest.
func (s *step) filling(column int) int64 {
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

// lot is some of the rows of a batch, from one to another, encoded by one goroutine.
type lot struct {
	enc      tokenizer.Encoding
	from, to int
	columns  [columns][]int32 // the rows' values behind each other
	ends     []int            // the tokens up to the end of each row, or window
	rows     []int32          // the row of each window
	longest  int
	failed   []failure
	chars    [2][]int32 // which code point each byte of the row's texts belongs to
}

// failure is a row that cannot be encoded.
type failure struct {
	row int
	err error
}

func (p *lot) reset(from int) {
	for i := range p.columns {
		p.columns[i] = p.columns[i][:0]
	}
	p.from, p.to, p.ends, p.rows, p.longest, p.failed = from, from, p.ends[:0], p.rows[:0], 0, p.failed[:0]
}

// encodeLot encodes the rows of p. A row that cannot be encoded stays empty.
func (s *step) encodeLot(ctx context.Context, j *job, p *lot) {
	p.enc.TrackOffsets, p.enc.KeepOverflow, p.enc.MostWindows = s.tracked, s.windows > 0, s.windows
	for row := p.from; row < p.to && ctx.Err() == nil; row++ {
		var pair []byte
		if len(j.pairs) > 0 {
			pair = j.pairs[row]
		}
		if err := s.encode(p, row, j.texts[row], pair, len(j.pairs) > 0); err != nil {
			p.failed = append(p.failed, failure{row, err})
		}
		if s.windows == 0 {
			p.ends = append(p.ends, len(p.columns[columnIDs]))
		}
	}
}

// encode appends one row to p, or its windows.
func (s *step) encode(p *lot, row int, text, pair []byte, paired bool) error {
	for port, t := range [...][]byte{portText: text, portPair: pair} {
		if len(t) > s.maxBytes {
			return status.Errorf(status.InvalidArg, "input '%s' has a text of %d bytes, expected at most %d (parameter '%s')",
				inputName(port), len(t), s.maxBytes, paramMaxBytes)
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
	s.addRow(p, &p.enc, chars)
	if s.windows > 0 {
		p.endWindow(row)
		for _, w := range p.enc.Overflow {
			s.addRow(p, w, chars)
			p.endWindow(row)
		}
	}
	return nil
}

// addRow appends the values of one row, or window.
func (s *step) addRow(p *lot, e *tokenizer.Encoding, chars [2][]int32) {
	p.longest = max(p.longest, e.Len())
	p.add(columnIDs, e.IDs)
	p.add(columnMask, e.Attention)
	p.add(columnTypes, e.TypeIDs)
	if s.more {
		p.add(columnSpecial, e.Special)
		p.add(columnWords, e.Words)
		p.add(columnSequences, e.Sequences)
		s.addOffsets(p, e, chars)
	}
}

// endWindow ends a window of a row.
func (p *lot) endWindow(row int) {
	p.ends, p.rows = append(p.ends, len(p.columns[columnIDs])), append(p.rows, int32(row))
}

func (p *lot) add(column int, values []int32) {
	p.columns[column] = append(p.columns[column], values...)
}

// countChars numbers the code points of texts whose offsets are to be counted in them; nil where those are bytes.
func (s *step) countChars(p *lot, text, pair []byte) (chars [2][]int32) {
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

// addOffsets appends the offsets, in code points unless bytes are asked for.
func (s *step) addOffsets(p *lot, e *tokenizer.Encoding, chars [2][]int32) {
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

// charAt is the code point at a byte. Some tokens of the reference end behind their text.
func charAt(chars []int32, at int32) int32 {
	if int(at) < len(chars) {
		return chars[at]
	}
	return at
}
