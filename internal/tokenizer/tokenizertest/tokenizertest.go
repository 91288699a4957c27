// Package tokenizertest reads the stored tokenizers and texts that the tests of the tokenizer engine and of its steps share.
// Their files lie in internal/tokenizer/testdata, with the scripts that made them.
package tokenizertest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// File returns a decompressed file of internal/tokenizer/testdata.
func File(tb testing.TB, name string) []byte {
	tb.Helper()
	root := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	return Gunzip(tb, filepath.Join(root, "internal/tokenizer/testdata", name))
}

// Gunzip returns a decompressed file.
func Gunzip(tb testing.TB, path string) []byte {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// MiniLM returns the MiniLM tokenizer.json with the sections of patch in place of its own.
func MiniLM(tb testing.TB, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	return Replace(tb, File(tb, "minilm.json.gz"), patch)
}

// NoLimits is a patch that removes truncation and padding from a file.
func NoLimits() map[string]json.RawMessage {
	return map[string]json.RawMessage{"truncation": nil, "padding": nil}
}

// smallModel is a few entries of the MiniLM vocabulary under their ids.
const smallModel = `{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
	"vocab":{"[PAD]":0,"[UNK]":100,"[CLS]":101,"[SEP]":102,"[MASK]":103,"hello":7592,"world":2088,"word":2773}}`

// Small returns MiniLM with a vocabulary of eight entries, for tests of anything but the vocabulary.
func Small(tb testing.TB, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	return Replace(tb, MiniLM(tb, map[string]json.RawMessage{"model": json.RawMessage(smallModel)}), patch)
}

// Replace returns a tokenizer.json with the sections of patch in place of its own.
func Replace(tb testing.TB, file []byte, patch map[string]json.RawMessage) []byte {
	tb.Helper()
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(file, &sections); err != nil {
		tb.Fatal(err)
	}
	maps.Copy(sections, patch)
	data, err := json.Marshal(sections)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

var (
	corpusOnce sync.Once
	corpusList [][]string
)

// Corpus returns the texts, and pairs of texts, that the reference's answers are for: those of gold.jsonl.gz, then those of
// more.json.gz.
func Corpus(tb testing.TB) [][]string {
	tb.Helper()
	corpusOnce.Do(func() {
		var head struct{ Corpus [][]string }
		if err := json.NewDecoder(bytes.NewReader(File(tb, "gold.jsonl.gz"))).Decode(&head); err != nil {
			tb.Fatal(err)
		}
		var more [][]string
		if err := json.Unmarshal(File(tb, "more.json.gz"), &more); err != nil {
			tb.Fatal(err)
		}
		corpusList = slices.Concat(head.Corpus, more)
	})
	return corpusList
}

// Stored returns a tokenizer.json of models.jsonl.gz by its name; "wordpiece" is MiniLM's without limits.
func Stored(tb testing.TB, name string) []byte {
	tb.Helper()
	if name == "wordpiece" {
		return MiniLM(tb, NoLimits())
	}
	if file := AllStored(tb)[name]; file != nil {
		return file
	}
	tb.Fatalf("no stored tokenizer '%s'", name)
	return nil
}

var (
	storedOnce sync.Once
	storedMap  map[string]json.RawMessage
)

// AllStored returns the files of models.jsonl.gz by their names.
func AllStored(tb testing.TB) map[string]json.RawMessage {
	tb.Helper()
	storedOnce.Do(func() {
		charsmap := base64.StdEncoding.EncodeToString(File(tb, "charsmap.gz"))
		data := bytes.ReplaceAll(File(tb, "models.jsonl.gz"), []byte(`"CHARSMAP"`), []byte(`"`+charsmap+`"`))
		storedMap = map[string]json.RawMessage{}
		for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
			var m struct {
				Name string
				File json.RawMessage
			}
			if err := d.Decode(&m); err != nil {
				tb.Fatal(err)
			}
			storedMap[m.Name] = m.File
		}
	})
	return storedMap
}
