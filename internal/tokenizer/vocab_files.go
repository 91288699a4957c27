package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefineWordPiece reads the vocab.txt of a BERT model: a token per line, whose number is the id. Text is cleaned, CJK ideographs are
// separated, and with lower accents are stripped and letters lowered, as BERT does. The template is [CLS] text [SEP].
func DefineWordPiece(data []byte, lower bool) (*Definition, error) {
	vocab := map[string]int{}
	id := 0
	for line := range bytes.Lines(data) {
		token := string(bytes.TrimRight(line, "\r\n"))
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("vocabulary line %d is not UTF-8", id+1)
		}
		vocab[token] = id // the last line counts, as in the reference
		id++
	}
	cls, okCLS := vocab["[CLS]"]
	sep, okSEP := vocab["[SEP]"]
	if !okCLS || !okSEP {
		return nil, errors.New("vocabulary has no [CLS] or [SEP]")
	}
	delete(vocab, "")
	model, err := json.Marshal(map[string]any{
		"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab,
	})
	if err != nil {
		return nil, err
	}
	return &Definition{
		Version: version, Model: model,
		AddedTokens: specialTokens(vocab, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
		Normalizer: json.RawMessage(fmt.Sprintf(
			`{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":%t}`, lower)),
		PreTokenizer:  json.RawMessage(`{"type":"BertPreTokenizer"}`),
		PostProcessor: json.RawMessage(fmt.Sprintf(`{"type":"BertProcessing","sep":["[SEP]",%d],"cls":["[CLS]",%d]}`, sep, cls)),
		Decoder:       json.RawMessage(`{"type":"WordPiece","prefix":"##","cleanup":true}`),
	}, nil
}

// specialTokens returns the special tokens among contents that the vocabulary has.
func specialTokens(vocab map[string]int, contents ...string) []AddedToken {
	var out []AddedToken
	for _, c := range contents {
		if id, ok := vocab[c]; ok {
			out = append(out, AddedToken{ID: int32(id), Content: c, Special: true, LStrip: c == "<mask>"})
		}
	}
	return out
}

// DefineByteLevelBPE reads the vocab.json and merges.txt of a GPT-2 or RoBERTa model: a JSON object of tokens and ids,
// and a line per merge, best first. With <s> and </s> in the vocabulary the template is RoBERTa's: <s> text </s>.
func DefineByteLevelBPE(vocabulary, merges []byte) (*Definition, error) {
	vocab := map[string]int{}
	if err := json.Unmarshal(vocabulary, &vocab); err != nil {
		return nil, fmt.Errorf("vocabulary file: %w", err)
	}
	pairs, err := parseMerges(merges)
	if err != nil {
		return nil, err
	}
	d := &Definition{
		Version: version, Decoder: json.RawMessage(byteLevelWhole), PreTokenizer: json.RawMessage(byteLevelWhole),
		AddedTokens: specialTokens(vocab, "<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"),
	}
	d.PostProcessor = json.RawMessage(`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`)
	cls, okCLS := vocab["<s>"]
	sep, okSEP := vocab["</s>"]
	if okCLS && okSEP {
		d.PostProcessor = json.RawMessage(fmt.Sprintf(
			`{"type":"RobertaProcessing","sep":["</s>",%d],"cls":["<s>",%d],"trim_offsets":true,"add_prefix_space":false}`, sep, cls))
	}
	d.Model, err = bpeModel(vocab, pairs, nil)
	return d, err
}

// byteLevelWhole is a component of type ByteLevel that also cuts words.
const byteLevelWhole = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`

func parseMerges(data []byte) ([][2]string, error) {
	out := [][2]string{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := string(bytes.TrimRight(line, "\r\n"))
		if text == "" || strings.HasPrefix(text, "#version") {
			continue
		}
		first, second, ok := strings.Cut(text, " ")
		if !ok || first == "" || second == "" || strings.Contains(second, " ") || !utf8.ValidString(text) {
			return nil, fmt.Errorf("merges line %d is not two tokens with a space between them: '%.80s'", number, text)
		}
		out = append(out, [2]string{first, second})
	}
	return out, nil
}
