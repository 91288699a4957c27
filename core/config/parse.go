package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// FileName is the name of a model's configuration in its folder.
const FileName = "config.pbtxt"

// namedFolder holds alternative configurations, as NAME.pbtxt.
const namedFolder = "configs"

// MaxFileSize bounds the text of a configuration in bytes, so that a wrong file cannot exhaust memory.
const MaxFileSize = 4 << 20

// Load reads the configuration in a model's folder. If there is none, the error wraps fs.ErrNotExist.
func Load(dir string) (*modelconfig.ModelConfig, error) {
	return LoadFile(filepath.Join(dir, FileName))
}

// LoadFile reads a configuration from a file. If there is none, the error wraps fs.ErrNotExist.
func LoadFile(path string) (*modelconfig.ModelConfig, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// PathOf returns the path of a model's configuration: configs/NAME.pbtxt if a name is given and the file exists,
// else config.pbtxt.
func PathOf(dir, name string) string {
	if name != "" && filepath.IsLocal(name) && filepath.Base(name) == name {
		path := filepath.Join(dir, namedFolder, name+".pbtxt")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return filepath.Join(dir, FileName)
}

// ReadText reads the text of a configuration. A file over MaxFileSize is rejected without reading it. If there is
// no file, the error wraps fs.ErrNotExist.
func ReadText(path string) ([]byte, error) {
	f, info, err := openRegular(path)
	var text []byte
	if err == nil {
		defer f.Close()
		if info.Size() > MaxFileSize {
			return nil, tooLarge(path, info.Size())
		}
		if text, err = io.ReadAll(io.LimitReader(f, MaxFileSize+1)); err != nil { // Parse rejects the byte more
			err = fmt.Errorf("reading %s: %w", path, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, status.Errorf(status.NotFound, "failed to open text file for read %s: %w", path, fs.ErrNotExist)
	case err != nil:
		d := newDiagnostic(Unreadable, "", fmt.Sprintf("failed to open text file for read %s: %v", path, err))
		d.File, d.status = path, status.Internal
		return nil, d.Err()
	}
	return text, nil
}

// Parse reads a configuration from text. path is used in errors only. An error has the form "line:column: problem",
// and ends with a suggestion.
func Parse(path string, text []byte) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, tooLarge(path, int64(len(text)))
	}
	cfg := new(modelconfig.ModelConfig)
	if err := prototext.Unmarshal(normaliseSpaces(text), cfg); err != nil {
		return nil, parserFault(path, text, err)
	}
	return cfg, nil
}

// normaliseSpaces replaces form feeds and vertical tabs outside strings by spaces: Triton's parser accepts them as
// white space, Go's does not.
func normaliseSpaces(text []byte) []byte {
	if !bytes.ContainsAny(text, "\v\f") {
		return text
	}
	text = bytes.Clone(text)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '#':
			i += skip(text[i:], func(c byte) bool { return c != '\n' }) - 1
		case '"', '\'':
			i += quoted(text[i:]) - 1
		case '\v', '\f':
			text[i] = ' '
		}
	}
	return text
}

func tooLarge(path string, size int64) error {
	d := newDiagnostic(TooLarge, "", fmt.Sprintf("failed to read text proto from %s: %d bytes, expected at most %d", path, size, MaxFileSize))
	d.File = path
	return d.Err()
}

// openRegular opens a file. Opening a pipe would wait for its writer.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("expected a file, found %s", info.Mode())
	}
	f, err := os.Open(path)
	return f, info, err
}

var (
	jsonUnknown = regexp.MustCompile(`unknown field "([^"]*)"`)
	jsonEnum    = regexp.MustCompile(`invalid value for enum field (\w+): "([^"]*)"`)
	jsonPlace   = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
)

// ParseJSON reads the configuration of a load request, in the JSON of the configuration endpoint or of protobuf.
// Unknown fields are errors. An error starts with Triton's text and ends with a suggestion.
func ParseJSON(text string) (*modelconfig.ModelConfig, error) {
	if len(text) > MaxFileSize {
		return nil, Errorf(BadOverride, "", "Invalid config override: %d bytes, expected at most %d", len(text), MaxFileSize)
	}
	cfg := new(modelconfig.ModelConfig)
	err := protojson.Unmarshal([]byte(text), cfg)
	if err == nil {
		return cfg, nil
	}
	msg := strings.Trim(strings.TrimPrefix(err.Error(), "proto:"), " \t\r\n\u00a0")
	var syntax *json.SyntaxError
	if e := json.Unmarshal([]byte(text), new(json.RawMessage)); errors.As(e, &syntax) {
		at := positionOf([]byte(text), int(min(syntax.Offset, int64(len(text)))))
		msg = fmt.Sprintf("(line %d:%d): %s", at.line, at.column, syntax)
	}
	d := newDiagnostic(BadOverride, "", "Invalid config override: "+msg+jsonHint(msg))
	if m := jsonPlace.FindStringSubmatch(msg); m != nil {
		at := positionOf([]byte(text), offsetOf([]byte(text), m[1], m[2]))
		d.Line, d.Column = at.line, at.column
	}
	return nil, d.Err()
}

// jsonHint suggests a field or value. The parser does not say which message an unknown name was in, so all names of
// the schema are candidates.
func jsonHint(msg string) string {
	var names []string
	hint := ""
	if m := jsonUnknown.FindStringSubmatch(msg); m != nil {
		if hint = DidYouMean(m[1], fieldNames(root)); hint == "" {
			eachField(root, func(fd protoreflect.FieldDescriptor) { names = append(names, fd.TextName()) })
			hint = DidYouMean(m[1], slices.Sorted(slices.Values(names)))
		}
	} else if m := jsonEnum.FindStringSubmatch(msg); m != nil {
		eachField(root, func(fd protoreflect.FieldDescriptor) {
			if fd.Enum() != nil && (fd.TextName() == m[1] || fd.JSONName() == m[1]) {
				names = append(names, enumNames(fd.Enum())...)
			}
		})
		hint = DidYouMean(m[2], slices.Sorted(slices.Values(names)))
	}
	if hint == "" {
		return ""
	}
	return "." + hint
}

// Positions holds the positions of the fields in a configuration's text.
type Positions struct {
	file string
	at   map[string]position
}

// position is a line and a column, both from 1.
type position struct{ line, column int }

// NewPositions finds the fields of text, which may be invalid.
func NewPositions(file string, text []byte) *Positions {
	p := &Positions{file: file, at: map[string]position{}}
	s := &scanner{text: text, seen: func(path string, offset int) {
		if _, known := p.at[path]; !known && len(p.at) < maxPlaces {
			p.at[path] = positionOf(text, offset)
		}
	}}
	if len(text) <= maxPlacedText {
		s.run(len(text))
	}
	return p
}

// A text beyond these bounds is no hand-written one: its diagnostics name fields only.
const (
	maxPlaces     = 1 << 14
	maxPlacedText = 1 << 18
)

// Locate sets the file, line and column of every diagnostic without them.
func (p *Positions) Locate(list []Diagnostic) {
	for i := range list {
		d := &list[i]
		if p == nil || d.File != "" {
			continue
		}
		d.File = p.file
		if at, ok := p.find(d.Field); ok {
			d.Line, d.Column = at.line, at.column
		}
	}
}

// Has reports whether the text sets the field.
func (p *Positions) Has(field string) bool {
	_, ok := p.at[field]
	return ok
}

// find returns the position of the field. If the text does not have it, the position of the innermost enclosing field.
func (p *Positions) find(field string) (position, bool) {
	for field != "" {
		if at, ok := p.at[field]; ok {
			return at, true
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return position{}, false
}

// positionOf converts an offset into a line and a column in characters.
func positionOf(text []byte, offset int) position {
	before := text[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return position{line: 1 + bytes.Count(before, []byte{'\n'}), column: 1 + utf8.RuneCount(before[start:])}
}

// scanner walks over protobuf text format without validating it.
type scanner struct {
	text   []byte
	seen   func(path string, offset int)
	frames []frame
}

// frame is one open message: its type, or nil if unknown, and the last field in it.
type frame struct {
	desc   protoreflect.MessageDescriptor
	path   string // with a trailing dot; empty for the outermost
	field  string
	offset int // of the field's name
	begins int // of the message, or of its name
	count  map[string]int
	value  bool // a colon was read
	list   bool // a bracket is open
}

// maxFrames bounds the nesting. The parser allows more, but no schema has it.
const maxFrames = 64

func (s *scanner) run(end int) {
	s.frames = []frame{{desc: root, count: map[string]int{}}}
	for i := 0; i < end; {
		rest := s.text[i:end]
		n := 1
		switch c := rest[0]; {
		case c == '#':
			n = skip(rest, func(c byte) bool { return c != '\n' })
		case c == '"' || c == '\'':
			n = quoted(rest)
			s.key(string(rest[:n]))
			s.top().value = false
		case isName(c):
			n = skip(rest, isName)
			s.name(string(rest[:n]), i)
		default:
			s.mark(c, i)
		}
		i += n
	}
}

func (s *scanner) top() *frame { return &s.frames[len(s.frames)-1] }

// name records a field's name, or skips a value.
func (s *scanner) name(name string, at int) {
	f := s.top()
	if f.value || f.list || name[0] <= '9' {
		f.value = false
		return
	}
	f.field, f.offset = name, at
	s.record(f.path+name, at)
}

// key records the position of a map entry as parameters.KEY.
func (s *scanner) key(quoted string) {
	if len(s.frames) < 2 || s.top().field != "key" {
		return
	}
	around := &s.frames[len(s.frames)-2]
	if fd := around.descriptor(); fd != nil && fd.IsMap() && len(quoted) > 2 {
		s.record(around.path+around.field+"."+quoted[1:len(quoted)-1], s.top().begins)
	}
}

func (s *scanner) mark(c byte, at int) {
	f := s.top()
	switch c {
	case ':':
		f.value = true
	case '[':
		f.list = true
	case ']':
		f.list, f.value = false, false
	case '{', '<':
		s.push(f, at)
	case '}', '>':
		if len(s.frames) > 1 {
			s.frames = s.frames[:len(s.frames)-1]
			s.top().value = false
		}
	}
}

// push opens the message of f's field.
func (s *scanner) push(f *frame, at int) {
	if len(s.frames) == maxFrames {
		return
	}
	if !f.list {
		at = f.offset
	}
	next := frame{path: f.path + f.field, begins: at, count: map[string]int{}}
	if fd := f.descriptor(); fd != nil {
		if next.desc = fd.Message(); fd.Cardinality() == protoreflect.Repeated {
			next.path += "[" + strconv.Itoa(f.count[f.field]) + "]"
			f.count[f.field]++
			s.record(next.path, at)
		}
	}
	next.path += "."
	s.frames = append(s.frames, next)
}

func (s *scanner) record(path string, at int) {
	if s.seen != nil {
		s.seen(path, at)
	}
}

func (f *frame) descriptor() protoreflect.FieldDescriptor {
	if f.desc == nil {
		return nil
	}
	return f.desc.Fields().ByTextName(f.field)
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// skip returns the number of leading bytes that satisfy ok, at least 1.
func skip(text []byte, ok func(byte) bool) int {
	n := 1
	for n < len(text) && ok(text[n]) {
		n++
	}
	return n
}

// quoted returns the length of the string literal at the start of text.
func quoted(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return len(text)
}
