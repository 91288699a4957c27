package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// tekkenFile is a tekken.json of Mistral's models: special tokens, which have the first ids, and tokens by rank. The file may have
// more tokens than the vocabulary size uses.
type tekkenFile struct {
	Config struct {
		Pattern string `json:"pattern"`
		Size    int    `json:"default_vocab_size"` // Special tokens included.
		Special int    `json:"default_num_special_tokens"`
		Version string `json:"version"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Token []byte `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank int    `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
}

// tekkenSpecial lists the special tokens of files up to version 7, which do not contain them.
var tekkenSpecial = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
	"[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// DefineTekken reads a tekken.json. The ids, and the text that they decode to, are those of the library, PyPI
// mistral-common 1.13.1: a special token's name in a text is plain text. bos and eos add begin and end marks.
func DefineTekken(data []byte, bos, eos bool) (*Definition, error) {
	var f tekkenFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tekken file: %w", err)
	}
	special, err := f.special()
	if err != nil {
		return nil, err
	}
	ids, err := f.ids()
	if err != nil {
		return nil, err
	}
	d := &Definition{Version: version, Decoder: json.RawMessage(byteLevelSection)}
	d.finish = func(t *Tokenizer) { t.finishTekken(special) }
	if d.PreTokenizer, err = splitSection(f.Config.Pattern); err != nil {
		return nil, err
	}
	if d.PostProcessor, err = markTemplate(bos, eos, func(text string) int { return slices.Index(special, text) }); err != nil {
		return nil, fmt.Errorf("tekken file: %w", err)
	}
	d.Model, err = rankModel(ids)
	return d, err
}

// special returns the special tokens by id.
func (f *tekkenFile) special() ([]string, error) {
	n := f.Config.Special
	if n < 0 || n > maxID || f.Config.Size-n < 256 || f.Config.Size > maxID {
		return nil, fmt.Errorf("tekken file has default_vocab_size %d with default_num_special_tokens %d, expected 256 more and at most %d",
			f.Config.Size, n, maxID)
	}
	list := tekkenSpecial
	if f.Special != nil {
		list = nil
		for i, s := range f.Special {
			if s.Rank != i || slices.Contains(list, s.Text) {
				return nil, fmt.Errorf("tekken file: special token '%.40s' has rank %d, expected a new token of rank %d", s.Text, s.Rank, i)
			}
			list = append(list, s.Text)
		}
	} else if !slices.Contains([]string{"v1", "v2", "v3", "v7"}, f.Config.Version) {
		return nil, fmt.Errorf("tekken file of version '%.40s' has no special_tokens", f.Config.Version)
	}
	if len(list) > n {
		return nil, fmt.Errorf("tekken file has %d special tokens, expected at most default_num_special_tokens %d", len(list), n)
	}
	list = slices.Clone(list)
	for i := len(list); i < n; i++ {
		list = append(list, fmt.Sprintf("<SPECIAL_%d>", i))
	}
	return list, nil
}

// ids returns the ids of the other tokens that the vocabulary size uses.
func (f *tekkenFile) ids() (map[string]int32, error) {
	n := f.Config.Size - f.Config.Special
	if len(f.Vocab) < n {
		return nil, fmt.Errorf("tekken file has %d tokens in vocab, expected at least %d", len(f.Vocab), n)
	}
	ids := make(map[string]int32, n)
	for i, v := range f.Vocab[:n] {
		_, twice := ids[string(v.Token)]
		switch {
		case v.Rank != i:
			return nil, fmt.Errorf("tekken file: token %d has rank %d", i, v.Rank)
		case len(v.Token) == 0 || len(v.Token) > maxEntry/2 || twice:
			return nil, fmt.Errorf("tekken file: token %d is not a new one of 1 to %d bytes", i, maxEntry/2)
		case i < 256 && (len(v.Token) != 1 || v.Token[0] != byte(i)):
			return nil, fmt.Errorf("tekken file: token %d is not byte %d", i, i)
		}
		ids[string(v.Token)] = int32(f.Config.Special + i)
	}
	return ids, nil
}

// finishTekken sets a property that a tokenizer.json cannot express: special tokens that no text contains.
func (t *Tokenizer) finishTekken(special []string) {
	t.reserved = int32(len(special))
	for i, text := range special {
		t.added[int32(i)] = text
	}
	t.padID = int32(max(slices.Index(special, "<pad>"), 0))
	if m, ok := t.model.(*bpe); ok {
		m.rankBy(func(id int32) int32 { return id })
	}
}

// splitSection returns a pre-tokenizer section: Split by a regular expression, then ByteLevel.
func splitSection(expression string) (json.RawMessage, error) {
	if expression == "" {
		return nil, errors.New("the pattern that cuts text into words is empty")
	}
	text, err := json.Marshal(expression)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":%s},`+
		`"behavior":"Isolated","invert":false},%s]}`, text, byteLevelSection)), nil
}

// markTemplate returns the post-processor that puts begin and end marks around each text; nil for none. id returns the id of a mark,
// negative for none.
func markTemplate(bos, eos bool, id func(text string) int) (json.RawMessage, error) {
	if !bos && !eos {
		return nil, nil
	}
	special, single, pair := map[string]any{}, []any(nil), []any(nil)
	mark := func(parts []any, on bool, text string, which int) ([]any, error) {
		if !on {
			return parts, nil
		}
		i := id(text)
		if i < 0 {
			return nil, errors.New("there is no control piece '" + text + "'")
		}
		special[text] = map[string]any{"id": text, "ids": []int{i}, "tokens": []string{text}}
		return append(parts, map[string]any{"SpecialToken": map[string]any{"id": text, "type_id": which}}), nil
	}
	for which, name := range []string{"A", "B"} {
		parts, err := mark(nil, bos, "<s>", which)
		if err != nil {
			return nil, err
		}
		parts = append(parts, map[string]any{"Sequence": map[string]any{"id": name, "type_id": which}})
		if parts, err = mark(parts, eos, "</s>", which); err != nil {
			return nil, err
		}
		if which == 0 {
			single = parts
		}
		pair = append(pair, parts...)
	}
	return json.Marshal(map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special})
}
