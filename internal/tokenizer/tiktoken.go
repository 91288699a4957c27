package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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
	contents := make([]string, len(tokens))
	for i, a := range tokens {
		contents[i], t.added[a.ID], t.special[a.Content] = a.Content, a.Content, true
	}
	t.before = newAddedTokens(tokens, contents)
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
