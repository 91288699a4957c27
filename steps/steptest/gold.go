package steptest

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// ReadGold decodes the results of another implementation from testdata/name, JSON compressed by gzip, which a script beside it has written.
func ReadGold(tb testing.TB, name string, into any) {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.NewDecoder(r).Decode(into); err != nil {
		tb.Fatalf("testdata/%s: %v", name, err)
	}
}
