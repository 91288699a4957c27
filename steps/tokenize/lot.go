package tokenize

import (
	"context"
	"unicode/utf8"

	"tutti/core/status"
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
		return None
	default:
		return 0
	}
}

// lot is some of the rows of a batch, from one to another, encoded by one goroutine.
type lot struct {
	enc      Encoding
	from, to int
	columns  [columns][]int32 // the rows' values behind each other
	ends     []int            // the tokens up to the end of each row
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
	p.from, p.to, p.ends, p.longest, p.failed = from, from, p.ends[:0], 0, p.failed[:0]
}

// encodeLot encodes the rows of p. A row that cannot be encoded stays empty.
func (s *step) encodeLot(ctx context.Context, j *job, p *lot) {
	p.enc.TrackOffsets = s.tracked
	for row := p.from; row < p.to && ctx.Err() == nil; row++ {
		var pair []byte
		if len(j.pairs) > 0 {
			pair = j.pairs[row]
		}
		if err := s.encode(p, j.texts[row], pair, len(j.pairs) > 0); err != nil {
			p.failed = append(p.failed, failure{row, err})
		}
		p.ends = append(p.ends, len(p.columns[columnIDs]))
	}
}

// encode appends one row to p.
func (s *step) encode(p *lot, text, pair []byte, paired bool) error {
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
	p.longest = max(p.longest, n)
	p.add(columnIDs, p.enc.IDs)
	p.add(columnMask, p.enc.Attention)
	p.add(columnTypes, p.enc.TypeIDs)
	if len(s.columns) > len(baseOutputs) {
		p.add(columnSpecial, p.enc.Special)
		p.add(columnWords, p.enc.Words)
		p.add(columnSequences, p.enc.Sequences)
		s.addOffsets(p, text, pair)
	}
	return nil
}

func (p *lot) add(column int, values []int32) {
	p.columns[column] = append(p.columns[column], values...)
}

// addOffsets appends the offsets, in code points unless bytes are asked for.
func (s *step) addOffsets(p *lot, text, pair []byte) {
	if !s.tracked {
		return
	}
	chars := [2][]int32{}
	for i, t := range [...][]byte{text, pair} {
		if !s.inBytes && !isASCII(t) {
			p.chars[i] = appendChars(p.chars[i][:0], t)
			chars[i] = p.chars[i]
		}
	}
	out := p.columns[columnOffsets]
	for i, at := range p.enc.Offsets {
		if which := p.enc.Sequences[i]; which != None && chars[which] != nil {
			at = Span{charAt(chars[which], at.Start), charAt(chars[which], at.End)}
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
