package tokenize

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/steps"
)

// The values of format.
const (
	formatAuto          = "auto"
	formatJSON          = "tokenizer_json"
	formatWordPiece     = "vocab_txt"
	formatByteLevelBPE  = "vocab_json"
	formatSentencePiece = "sentencepiece"
	formatTiktoken      = "tiktoken"
	formatTekken        = "tekken"
)

// formatParams are the parameters of load.
func formatParams() []steps.Param {
	yes := []string{"true", "false"}
	return []steps.Param{
		{Key: "tokenizer_file", Default: "tokenizer.json", Doc: "tokenizer file, in the version folder or the model folder"},
		{
			Key: "format", Default: formatAuto,
			Values: []string{formatAuto, formatJSON, formatWordPiece, formatByteLevelBPE, formatSentencePiece, formatTiktoken, formatTekken},
			Doc: "format of the file; auto chooses by its name: .txt is a BERT vocab.txt, vocab.json one with merges_file, " +
				".model of sentencepiece, .tiktoken ranks, tekken.json (or any name with tekken that ends so) of Mistral's models, " +
				"and others a Hugging Face tokenizer.json",
		},
		{Key: "merges_file", Default: "merges.txt", Doc: "merges of format vocab_json"},
		{Key: "lower_case", Default: "true", Values: yes, Doc: "whether format vocab_txt puts text in lower case without accents"},
		{
			Key: "pattern", Default: "cl100k", Values: tokenizer.PatternNames(),
			Doc: "encoding whose pattern cuts text into words in format tiktoken; cl100k also serves Llama 3, and qwen Qwen's models",
		},
		{Key: "special_tokens", Default: "none", Doc: "special tokens of format tiktoken, as TEXT=ID with spaces between them; none for none"},
		{Key: "add_bos", Default: "false", Values: yes, Doc: "whether format sentencepiece or tekken puts its begin mark before each text"},
		{Key: "add_eos", Default: "false", Values: yes, Doc: "whether format sentencepiece or tekken puts its end mark behind each text"},
	}
}

// load builds the tokenizer that the parameters describe.
func load(s *steps.Settings) (*tokenizer.Tokenizer, error) {
	name := s.Params["tokenizer_file"]
	data, err := readFile(s, name)
	if err != nil {
		return nil, err
	}
	format := s.Params["format"]
	if format == formatAuto || format == "" {
		format = formatOf(name)
	}
	if format == formatJSON {
		return tokenizer.Parse(data)
	}
	d, err := define(s, format, data)
	if err != nil {
		return nil, err
	}
	return tokenizer.New(d)
}

func define(s *steps.Settings, format string, data []byte) (*tokenizer.Definition, error) {
	switch format {
	case formatWordPiece:
		return tokenizer.DefineWordPiece(data, s.Params["lower_case"] == "true")
	case formatByteLevelBPE:
		merges, err := readFile(s, s.Params["merges_file"])
		if err != nil {
			return nil, err
		}
		return tokenizer.DefineByteLevelBPE(data, merges)
	case formatSentencePiece:
		return tokenizer.DefineSentencePiece(data, s.Params["add_bos"] == "true", s.Params["add_eos"] == "true")
	case formatTekken:
		return tokenizer.DefineTekken(data, s.Params["add_bos"] == "true", s.Params["add_eos"] == "true")
	case formatTiktoken:
		special := s.Params["special_tokens"]
		if special == "none" {
			special = ""
		}
		return tokenizer.DefineTiktoken(data, s.Params["pattern"], special)
	default:
		return nil, status.Errorf(status.InvalidArg, "parameter '%s' of model '%s' is '%s', expected a format", "format", s.Model, format)
	}
}

// formatOf chooses the format by a file's name.
func formatOf(name string) string {
	base := strings.ToLower(filepath.Base(name))
	switch {
	case base == "vocab.json":
		return formatByteLevelBPE
	case strings.HasSuffix(base, ".txt"):
		return formatWordPiece
	case strings.HasSuffix(base, ".model"):
		return formatSentencePiece
	case strings.HasSuffix(base, ".tiktoken"):
		return formatTiktoken
	case strings.Contains(base, "tekken") && strings.HasSuffix(base, ".json"):
		return formatTekken
	default:
		return formatJSON
	}
}

func readFile(s *steps.Settings, name string) ([]byte, error) {
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
