package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"testing"

	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
)

// TestWords compares the numbers of words and sequences with the reference's.
func TestWords(t *testing.T) {
	t.Parallel()
	entries := tokenizertest.Corpus(t)
	for d := json.NewDecoder(bytes.NewReader(tokenizertest.File(t, "words.jsonl.gz"))); d.More(); {
		var name string
		var sums [][2]uint32
		if err := d.Decode(&[]any{&name, &sums}); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, e, bad := mustParse(t, tokenizertest.Stored(t, name)), &tokenizer.Encoding{TrackOffsets: true}, 0
			for _, s := range sums {
				written(tok, e, entries[s[0]])
				got := "[" + list(e.Words) + "," + list(e.Sequences) + "]"
				if crc32.ChecksumIEEE([]byte(got)) == s[1] {
					continue
				}
				if bad++; bad <= 5 {
					t.Errorf("words of %q are %s", entries[s[0]], got)
				}
			}
			t.Logf("%d of %d equal", len(sums)-bad, len(sums))
		})
	}
}
