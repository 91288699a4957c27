package tokenizer

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// wordPieceDecoder puts spaces between words and removes the prefix of pieces inside words.
type wordPieceDecoder struct {
	Prefix  string `json:"prefix"`
	Cleanup bool   `json:"cleanup"`
}

func (d *wordPieceDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		piece, start := src.at(i), len(dst.buf)
		if i > 0 && hasPrefix(piece, d.Prefix) {
			dst.buf = append(dst.buf, piece[len(d.Prefix):]...)
		} else {
			if i > 0 {
				dst.buf = append(dst.buf, ' ')
			}
			dst.buf = append(dst.buf, piece...)
		}
		if d.Cleanup {
			dst.buf = cleanUp(dst.buf, start)
		}
		dst.end()
	}
}

// untidy lists the replacements of a clean-up, in order: the spaces that tokenization put before English punctuation.
var untidy = [...]struct{ from, to string }{
	{" .", "."},
	{" ?", "?"},
	{" !", "!"},
	{" ,", ","},
	{" ' ", "'"},
	{" n't", "n't"},
	{" 'm", "'m"},
	{" do not", " don't"},
	{" 's", "'s"},
	{" 've", "'ve"},
	{" 're", "'re"},
}

// cleanUp applies the replacements to buf from start on. No replacement is longer than the text it replaces.
func cleanUp(buf []byte, start int) []byte {
	if !isUntidy(buf[start:]) {
		return buf
	}
	for i := range untidy {
		buf = appendReplaced(buf[:start], buf[start:], untidy[i].from, untidy[i].to)
	}
	return buf
}

// isUntidy reports whether any of the replacements has something to do. All of them start with a space.
func isUntidy(b []byte) bool {
	for {
		at := bytes.IndexByte(b, ' ')
		if at < 0 || at+1 == len(b) {
			return false
		}
		b = b[at:]
		switch b[1] {
		case '.', '?', '!', ',':
			return true
		case '\'', 'n', 'd':
			for i := range untidy {
				if hasPrefix(b, untidy[i].from) {
					return true
				}
			}
		}
		b = b[1:]
	}
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// metaspaceDecoder makes spaces of the replacement character, but of those that stand in the first piece where one was
// put in front of the text.
type metaspaceDecoder struct {
	replacement []byte
	prepended   bool
}

func (d *metaspaceDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		for piece := src.at(i); len(piece) > 0; {
			n := bytes.Index(piece, d.replacement)
			if n < 0 {
				dst.buf = append(dst.buf, piece...)
				break
			}
			dst.buf = append(dst.buf, piece[:n]...)
			if i > 0 || !d.prepended {
				dst.buf = append(dst.buf, ' ')
			}
			piece = piece[n+len(d.replacement):]
		}
		dst.end()
	}
}

// suffixDecoder replaces the end-of-word mark by a space, and removes that of the last piece.
type suffixDecoder struct {
	Suffix string `json:"suffix"`
}

func (d *suffixDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		with := " "
		if i == len(src.ends)-1 {
			with = ""
		}
		dst.buf = appendReplaced(dst.buf, src.at(i), d.Suffix, with)
		dst.end()
	}
}

// appendReplaced appends src with every from, which is not empty, replaced. src may follow dst where to is not longer than from.
func appendReplaced(dst, src []byte, from, to string) []byte {
	for at := 0; at < len(src); {
		if src[at] == from[0] && hasPrefix(src[at:], from) {
			dst = append(dst, to...)
			at += len(from)
			continue
		}
		dst = append(dst, src[at])
		at++
	}
	return dst
}

// ctcDecoder joins equal neighbours and removes the padding token.
type ctcDecoder struct {
	Pad       string `json:"pad_token"`
	Delimiter string `json:"word_delimiter_token"`
	Cleanup   bool   `json:"cleanup"`
}

func (d *ctcDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		if i > 0 && bytes.Equal(src.at(i), src.at(i-1)) {
			continue
		}
		start := len(dst.buf)
		dst.buf = appendReplaced(dst.buf, src.at(i), d.Pad, "")
		if d.Cleanup {
			dst.buf = cleanUp(dst.buf, start)
			dst.buf = appendReplaced(dst.buf[:start], dst.buf[start:], d.Delimiter, " ")
		}
		if len(dst.buf) > start {
			dst.end()
		}
	}
}

// fuseDecoder joins all pieces.
type fuseDecoder struct{}

func (fuseDecoder) decode(dst, src *pieces) {
	dst.buf = append(dst.buf, src.buf...)
	dst.end()
}

// stripDecoder removes up to start and stop repetitions of a character at the ends of each piece.
type stripDecoder struct {
	Content string `json:"content"`
	Start   int    `json:"start"`
	Stop    int    `json:"stop"`
}

func (d *stripDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		piece := src.at(i)
		for n := 0; n < d.Start && hasPrefix(piece, d.Content); n++ {
			piece = piece[len(d.Content):]
		}
		for n := 0; n < d.Stop && bytes.HasSuffix(piece, []byte(d.Content)); n++ {
			piece = piece[:len(piece)-len(d.Content)]
		}
		dst.buf = append(dst.buf, piece...)
		dst.end()
	}
}

// replaceDecoder replaces a text in each piece.
type replaceDecoder struct{ from, to string }

func (d *replaceDecoder) decode(dst, src *pieces) {
	for i := range src.ends {
		dst.buf = appendReplaced(dst.buf, src.at(i), d.from, d.to)
		dst.end()
	}
}

// byteDecoder turns consecutive pieces such as "<0x41>" into the characters of their bytes, or each into U+FFFD where the bytes are
// not UTF-8.
type byteDecoder struct{}

func (byteDecoder) decode(dst, src *pieces) {
	start := 0 // of the bytes in dst that wait
	for i := range src.ends {
		if b, ok := fallbackByte(src.at(i)); ok {
			dst.buf = append(dst.buf, b)
			continue
		}
		endBytes(dst, start)
		dst.buf = append(dst.buf, src.at(i)...)
		dst.end()
		start = len(dst.buf)
	}
	endBytes(dst, start)
}

// endBytes makes one piece of the bytes from start on, or one per byte where they are not UTF-8.
func endBytes(p *pieces, start int) {
	n := len(p.buf) - start
	switch {
	case n == 0:
	case utf8.Valid(p.buf[start:]):
		p.end()
	default:
		p.buf = p.buf[:start]
		for range n {
			p.buf = append(p.buf, "\uFFFD"...)
			p.end()
		}
	}
}

// fallbackByte reads "<0x41>", and "<0x+F>" as the reference does.
func fallbackByte(piece []byte) (byte, bool) {
	if len(piece) != 6 || string(piece[:3]) != "<0x" || piece[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseInt(string(piece[3:5]), 16, 16)
	return byte(v), err == nil && piece[3] != '-'
}
