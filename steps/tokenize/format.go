package tokenize

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/steps"
)

// formatParams are the parameters of load.
func formatParams() []steps.Param {
	yes := []string{"true", "false"}
	return []steps.Param{
		{Key: "tokenizer_file", Default: "tokenizer.json", Doc: "tokenizer file, in the version folder or the model folder"},
		{
			Key: "format", Default: "auto", Values: []string{"auto", "tokenizer_json", "vocab_txt", "vocab_json", "sentencepiece", "tiktoken", "tekken"},
			Doc: "format of the file; auto chooses by its name: .txt is a BERT vocab.txt, vocab.json one with merges_file, " +
				".model of sentencepiece, .tiktoken ranks, .json with tekken in the name of Mistral's models, " +
				"and others a Hugging Face tokenizer.json",
		},
		{Key: "merges_file", Default: "merges.txt", Doc: "merges of format vocab_json"},
		{Key: "lower_case", Default: "true", Values: yes, Doc: "whether format vocab_txt puts text in lower case without accents"},
		{Key: "pattern", Default: "cl100k", Values: tokenizer.PatternNames(), Doc: "encoding whose pattern cuts text into words in format tiktoken; cl100k also serves Llama 3, and qwen Qwen's models"},
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
	if format == "auto" || format == "" {
		format = formatOf(name)
	}
	var d *tokenizer.Definition
	bos, eos := s.Params["add_bos"] == "true", s.Params["add_eos"] == "true"
	switch format {
	case "tokenizer_json":
		return tokenizer.Parse(data)
	case "vocab_txt":
		d, err = tokenizer.DefineWordPiece(data, s.Params["lower_case"] == "true")
	case "vocab_json":
		var merges []byte
		if merges, err = readFile(s, s.Params["merges_file"]); err == nil {
			d, err = tokenizer.DefineByteLevelBPE(data, merges)
		}
	case "sentencepiece":
		d, err = tokenizer.DefineSentencePiece(data, bos, eos)
	case "tekken":
		d, err = tokenizer.DefineTekken(data, bos, eos)
	case "tiktoken":
		special := s.Params["special_tokens"]
		if special == "none" {
			special = ""
		}
		d, err = tokenizer.DefineTiktoken(data, s.Params["pattern"], special)
	default:
		err = status.Errorf(status.InvalidArg, "parameter 'format' of model '%s' is '%s', expected a format", s.Model, format)
	}
	if err != nil {
		return nil, err
	}
	return tokenizer.New(d)
}

// formatOf chooses the format by a file's name.
func formatOf(name string) string {
	base := strings.ToLower(filepath.Base(name))
	switch {
	case base == "vocab.json":
		return "vocab_json"
	case strings.HasSuffix(base, ".txt"):
		return "vocab_txt"
	case strings.HasSuffix(base, ".model"):
		return "sentencepiece"
	case strings.HasSuffix(base, ".tiktoken"):
		return "tiktoken"
	case strings.Contains(base, "tekken") && strings.HasSuffix(base, ".json"):
		return "tekken"
	default:
		return "tokenizer_json"
	}
}

func readFile(s *steps.Settings, name string) ([]byte, error) {
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
