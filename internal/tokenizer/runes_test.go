package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// TestEveryCodePoint compares what the BERT stages make of each code point with the reference, by a checksum per
// 256 of them. A change of Go's or golang.org/x/text's Unicode tables shows here.
func TestEveryCodePoint(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(string(tokenizertest.File(t, "runes.txt.gz"))) {
		options, sums, _ := strings.Cut(strings.TrimSpace(line), " ")
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && options != "1111" {
				t.Skip("only the usual options in a short run")
			}
			tok := mustParse(t, tokenizertest.MiniLM(t, map[string]json.RawMessage{"normalizer": bertOptions(options)}))
			for page, want := range strings.Fields(sums) {
				if testing.Short() && page >= 0x300 && page>>8 != 0xE {
					continue // nothing but unassigned and private code points
				}
				if got := pageSum(tok, page); got != want {
					t.Errorf("code points %X00 to %XFF differ from the reference", page, page)
				}
			}
		})
	}
}

// bertOptions is the normalizer of four flags, each a byte 0 or 1.
func bertOptions(flags string) json.RawMessage {
	on := func(i int) bool { return flags[i] == '1' }
	return json.RawMessage(fmt.Sprintf(
		`{"type":"BertNormalizer","clean_text":%v,"handle_chinese_chars":%v,"strip_accents":%v,"lowercase":%v}`,
		on(0), on(1), on(2), on(3)))
}

// pageSum is the checksum that the script writes for a page.
func pageSum(tok *tokenizer.Tokenizer, page int) string {
	var words, src []byte
	var cutter tokenizer.Cutter
	for c := rune(page << 8); c < rune(page+1)<<8; c++ {
		if c >= 0xD800 && c < 0xE000 {
			continue
		}
		src = append(utf8.AppendRune(append(src[:0], 'a'), c), "\u0345\u302ea"...)
		words = cutter.Cut(words, tok, src)
	}
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(words)), 16)
}
