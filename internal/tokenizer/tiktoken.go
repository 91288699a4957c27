package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tiktokenNames maps encodings to their patterns: those of the library, and qwen, which is cl100k with one word per digit.
var tiktokenNames = map[string]string{
	"gpt2": "gpt2", "r50k_base": "gpt2", "p50k_base": "gpt2", "p50k_edit": "gpt2",
	"cl100k": "cl100k", "cl100k_base": "cl100k",
	"o200k": "o200k", "o200k_base": "o200k", "o200k_harmony": "o200k",
	"qwen": "qwen",
}

// tiktokenPatterns has the regular expressions that cut text into words.
var tiktokenPatterns = map[string]string{
	"qwen": qwenText, "gpt2": gpt2Text, "cl100k": llamaText,
	"o200k": `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// PatternNames lists the pattern names that DefineTiktoken knows, sorted.
func PatternNames() []string { return slices.Sorted(maps.Keys(tiktokenNames)) }

// DefineTiktoken reads a tiktoken rank file: a line per token, its bytes in base64 and its rank, which is its id. The
// pattern is that of an encoding, such as cl100k_base or qwen. special lists further tokens as TEXT=ID, separated by white space. The ids are those
// of the library, PyPI tiktoken 0.14.0, with all special tokens allowed.
func DefineTiktoken(data []byte, pattern, special string) (*Definition, error) {
	expression, ok := tiktokenPatterns[tiktokenNames[pattern]]
	if !ok {
		return nil, fmt.Errorf("tiktoken pattern '%s' is unknown, expected one of %s", pattern, strings.Join(PatternNames(), ", "))
	}
	ranks, err := parseRanks(data)
	if err != nil {
		return nil, err
	}
	d := &Definition{Version: version, Decoder: json.RawMessage(byteLevelSection)}
	tokens, err := parseSpecial(special, ranks)
	if err != nil {
		return nil, err
	}
	d.finish = func(t *Tokenizer) {
		t.number(tokens)
		if m, ok := t.model.(*bpe); ok {
			m.rankBy(func(id int32) int32 { return id })
		}
	}
	if d.PreTokenizer, err = splitSection(expression); err != nil {
		return nil, err
	}
	d.Model, err = rankModel(ranks)
	return d, err
}

// byteLevelSection is a component of type ByteLevel that only maps bytes to characters.
const byteLevelSection = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`

func parseRanks(data []byte) (map[string]int32, error) {
	ranks, used := map[string]int32{}, map[int32]bool{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("tiktoken line %d has %d fields, expected a token in base64 and its rank", number, len(fields))
		}
		token, err := base64.StdEncoding.AppendDecode(nil, fields[0])
		if err != nil || len(token) == 0 || len(token) > maxEntry/2 {
			return nil, fmt.Errorf("tiktoken line %d: '%.40s' is not a token of 1 to %d bytes in base64", number, fields[0], maxEntry/2)
		}
		rank, err := strconv.ParseInt(string(fields[1]), 10, 32)
		if err != nil || rank < 0 || rank > maxID || used[int32(rank)] {
			return nil, fmt.Errorf("tiktoken line %d: rank '%.40s' is not a new integer from 0 to %d", number, fields[1], maxID)
		}
		if _, ok := ranks[string(token)]; ok {
			return nil, fmt.Errorf("tiktoken line %d: token '%.40s' is given twice", number, fields[0])
		}
		ranks[string(token)], used[int32(rank)] = int32(rank), true
	}
	for b := range 256 {
		if _, ok := ranks[string([]byte{byte(b)})]; !ok {
			return nil, fmt.Errorf("tiktoken file has no token for byte %d", b)
		}
	}
	return ranks, nil
}

// parseSpecial reads TEXT=ID fields.
func parseSpecial(list string, ranks map[string]int32) ([]AddedToken, error) {
	var out []AddedToken
	used := map[int32]bool{}
	for _, rank := range ranks {
		used[rank] = true
	}
	for field := range strings.FieldsSeq(list) {
		at := strings.LastIndexByte(field, '=')
		if at <= 0 {
			return nil, fmt.Errorf("special token '%s' is not TEXT=ID", field)
		}
		id, err := strconv.ParseInt(field[at+1:], 10, 32)
		if err != nil || id < 0 || used[int32(id)] {
			return nil, fmt.Errorf("special token '%s' is not TEXT=ID with a new id", field)
		}
		used[int32(id)] = true
		if _, ok := ranks[field[:at]]; ok {
			return nil, fmt.Errorf("special token '%s' is an entry of the tiktoken file", field[:at])
		}
		out = append(out, AddedToken{ID: int32(id), Content: field[:at], Special: true})
	}
	return out, nil
}

// number adds special tokens under their ids. A tokenizer.json would number them from the end of the vocabulary on.
func (t *Tokenizer) number(tokens []AddedToken) {
	for _, a := range tokens {
		t.added[a.ID], t.special[a.Content] = a.Content, true
	}
	t.before = newAddedTokens(tokens)
}

// rankModel derives merges from the ranks: every way to cut a token into two others, lowest rank first. A word that is a token is not
// merged (ignore_merges).
func rankModel(ranks map[string]int32) (json.RawMessage, error) {
	tokens := slices.Collect(maps.Keys(ranks))
	slices.SortFunc(tokens, func(a, b string) int { return int(ranks[a]) - int(ranks[b]) })
	known := func(s string) bool {
		_, ok := ranks[s]
		return ok
	}
	vocab, merges := make(map[string]int, len(ranks)), [][2]string{}
	for _, token := range tokens {
		vocab[charsOf(token)] = int(ranks[token])
		from := len(merges)
		merges = appendCuts(merges, token, false, known)
		for i, pair := range merges[from:] {
			merges[from+i] = [2]string{charsOf(pair[0]), charsOf(pair[1])}
		}
	}
	return bpeModel(vocab, merges, map[string]any{"ignore_merges": true})
}

// charsOf writes bytes as the characters of ByteLevel.
func charsOf(s string) string {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = utf8.AppendRune(out, byteChars[s[i]])
	}
	return string(out)
}

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
	if d.template, err = markTemplate(bos, eos, func(text string) int { return slices.Index(special, text) }); err != nil {
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

// markTemplate returns the template that puts begin and end marks around each text; nil for none. id returns the id of a mark,
// negative for none.
func markTemplate(bos, eos bool, id func(text string) int) (*template, error) {
	if !bos && !eos {
		return nil, nil
	}
	var before, after []int32
	for _, mark := range []struct {
		on   bool
		text string
		ids  *[]int32
	}{{bos, "<s>", &before}, {eos, "</s>", &after}} {
		if i := id(mark.text); mark.on && i < 0 {
			return nil, errors.New("there is no control piece '" + mark.text + "'")
		} else if mark.on {
			*mark.ids = []int32{int32(i)}
		}
	}
	marked := func(sequence int, typeID int32) []templatePart {
		return []templatePart{{specialPart, before, typeID}, {sequence, nil, typeID}, {specialPart, after, typeID}}
	}
	return &template{single: marked(0, 0), pair: append(marked(0, 0), marked(1, 1)...)}, nil
}
