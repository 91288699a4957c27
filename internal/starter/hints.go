package starter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/internal/tokenizer"
)

// hints are the files that say more about a model than its inputs and outputs: those that the options name, and those that exports of
// Hugging Face and Ultralytics have beside the model.
type hints struct {
	labels     []string
	labelsFrom string
	tokenizer  *tokenizerHint
	images     *processor
	config     modelConfig
	pooling    string // mode of the step pool; empty when no file says
}

// modelConfig is the part of Hugging Face's config.json that is read.
type modelConfig struct {
	Labels    map[string]string `json:"id2label"`
	Problem   string            `json:"problem_type"`
	Positions int               `json:"max_position_embeddings"`
	Type      string            `json:"model_type"`
	Size      json.RawMessage   `json:"image_size"`
}

// processor is the part of Hugging Face's preprocessor_config.json that is read.
type processor struct {
	Resize    *bool           `json:"do_resize"`
	Crop      *bool           `json:"do_center_crop"`
	Rescale   *bool           `json:"do_rescale"`
	Normalize *bool           `json:"do_normalize"`
	Size      json.RawMessage `json:"size"`
	CropSize  json.RawMessage `json:"crop_size"`
	CropPct   float64         `json:"crop_pct"`
	Factor    float64         `json:"rescale_factor"`
	Mean      []float64       `json:"image_mean"`
	Std       []float64       `json:"image_std"`
	Filter    int             `json:"resample"`
}

// tokenizerHint is a tokenizer file that was read.
type tokenizerHint struct {
	path, name string
	merges     string // path of the merges of vocab.json
	data       []byte
	t          *tokenizer.Tokenizer
	lower      *bool // whether vocab.txt is in lower case
}

// maxHint bounds the files of hints in bytes.
const maxHint = 256 << 20

// near returns the path of a file beside the model or in the folder above it, where Hugging Face has the files of onnx/model.onnx. It
// returns "" if there is none.
func (b *builder) near(name string) string {
	dir := filepath.Dir(b.m.Path)
	dirs := []string{dir}
	if base := filepath.Base(dir); base == "onnx" || base == "openvino" {
		dirs = append(dirs, filepath.Dir(dir))
	}
	for _, d := range dirs {
		if path := filepath.Join(d, name); files.IsRegular(path) {
			return path
		}
	}
	return ""
}

// nearJSON reads a JSON file near the model. A file that is missing or of another form is no hint.
func (b *builder) nearJSON(name string, to any) bool {
	path := b.near(name)
	if path == "" {
		return false
	}
	data, err := readHint(path)
	return err == nil && json.Unmarshal(data, to) == nil
}

func readHint(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("'%s' is no file", path)
	case info.Size() > maxHint:
		return nil, fmt.Errorf("'%s' has %d bytes, expected at most %d", path, info.Size(), maxHint)
	}
	return os.ReadFile(path)
}

// findHints reads the files that the options name, and those near the model.
func (b *builder) findHints() error {
	if !b.nearJSON("config.json", &b.hints.config) {
		b.hints.config = modelConfig{}
	}
	if p := (&processor{}); b.nearJSON("preprocessor_config.json", p) {
		b.hints.images = p
	}
	if err := b.findTokenizer(); err != nil {
		return err
	}
	b.findPooling()
	return b.findLabels()
}

// tokenizerFiles are the names of tokenizer files, the best first.
var tokenizerFiles = []string{"tokenizer.json", "vocab.txt", "tekken.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"}

func (b *builder) findTokenizer() error {
	path := b.o.Tokenizer
	if info, err := os.Stat(path); path != "" && err == nil && info.IsDir() {
		folder := path
		i := slices.IndexFunc(tokenizerFiles, func(name string) bool { return files.IsRegular(filepath.Join(folder, name)) })
		if i < 0 {
			return fmt.Errorf("the folder '%s' has no tokenizer, expected one of %s", path, strings.Join(tokenizerFiles, ", "))
		}
		path = filepath.Join(path, tokenizerFiles[i])
	}
	for _, name := range tokenizerFiles {
		if path == "" {
			path = b.near(name)
		}
	}
	if path == "" {
		return nil
	}
	h, err := readTokenizer(path)
	if err != nil {
		return fmt.Errorf("the tokenizer '%s' cannot be read: %w", path, err)
	}
	var set struct {
		Lower *bool `json:"do_lower_case"`
	}
	if data, err := readHint(filepath.Join(filepath.Dir(path), "tokenizer_config.json")); err == nil && json.Unmarshal(data, &set) == nil {
		h.lower = set.Lower
	}
	b.hints.tokenizer = h
	return nil
}

// readTokenizer reads a tokenizer file as the step tokenize does, which chooses the format by the name.
func readTokenizer(path string) (*tokenizerHint, error) {
	data, err := readHint(path)
	if err != nil {
		return nil, err
	}
	h := &tokenizerHint{path: path, name: filepath.Base(path), data: data}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	if bytes.HasPrefix(data, []byte(lfsMark)) {
		return nil, errors.New("it is the pointer of a file that Git LFS stores: run git lfs pull")
	}
	var d *tokenizer.Definition
	switch name := strings.ToLower(h.name); {
	case name == "vocab.json":
		h.merges = filepath.Join(filepath.Dir(path), "merges.txt")
		merges, err := readHint(h.merges)
		if err != nil {
			return nil, fmt.Errorf("vocab.json needs its merges: %w", err)
		}
		d, err = tokenizer.DefineByteLevelBPE(data, merges)
		if err != nil {
			return nil, err
		}
	case strings.HasSuffix(name, ".txt"):
		d, err = tokenizer.DefineWordPiece(data, true)
	case strings.HasSuffix(name, ".model"):
		d, err = tokenizer.DefineSentencePiece(data, false, false)
	case strings.HasSuffix(name, ".tiktoken"):
		d, err = tokenizer.DefineTiktoken(data, "cl100k", "")
	case strings.Contains(name, "tekken") && strings.HasSuffix(name, ".json"):
		d, err = tokenizer.DefineTekken(data, false, false)
	case name == "tokenizer_config.json" || name == "special_tokens_map.json":
		return nil, errors.New("it is no tokenizer, expected the tokenizer.json beside it")
	default:
		h.t, err = tokenizer.Parse(data)
		return h, err
	}
	if err != nil {
		return nil, err
	}
	h.t, err = tokenizer.New(d)
	return h, err
}

// findPooling reads 1_Pooling/config.json of sentence-transformers.
func (b *builder) findPooling() {
	var modes map[string]any
	if !b.nearJSON(filepath.Join("1_Pooling", "config.json"), &modes) {
		return
	}
	for key, mode := range map[string]string{
		"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max", "pooling_mode_lasttoken": "last",
		"pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len", "pooling_mode_weightedmean_tokens": "weighted_mean",
	} {
		if on, ok := modes[key].(bool); ok && on {
			b.hints.pooling = mode
		}
	}
}
