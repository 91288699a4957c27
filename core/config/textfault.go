package config

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

var (
	parserError = regexp.MustCompile(`(?s)^(?:syntax error )?\(line (\d+):(\d+)\): (.*)$`)
	wrongValue  = regexp.MustCompile(`(?s)^invalid (?:scalar value|value for (\w+) type|value for (\w+) field \w+): (.*)$`)
	wrongField  = regexp.MustCompile(`^unknown (?:map entry )?field:? "?([^":]*)"?$`)
	repeated    = regexp.MustCompile(`^non-repeated field "([^"]*)" is repeated$`)
	oneof       = regexp.MustCompile(`^error parsing "([^"]*)", oneof (\S+) is already set$`)
	digits      = regexp.MustCompile(`^-?\d+$`)
)

const parserHead = "Error parsing text-format inference.ModelConfig: "

// root describes a whole configuration.
var root = (*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor()

// visible replaces runes that a log or terminal cannot show.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

// parserFault converts an error of Go's text parser into the text and position of the C++ parser's, because tools
// that read Triton's log match them. The C++ parser reports the token after a name; the diagnostic's own position
// is the start of the fault.
func parserFault(path string, text []byte, err error) error {
	// Go's protobuf writes a random kind of space after its prefix, to prevent matching on the text.
	msg := strings.Trim(strings.TrimPrefix(err.Error(), "proto:"), " \t\r\n\u00a0")
	msg = strings.Map(visible, msg)
	f := &textFault{text: text, code: BadText, at: len(text), words: msg}
	if m := parserError.FindStringSubmatch(msg); m != nil {
		f.at, f.words = offsetOf(text, m[1], m[2]), m[3]
	}
	s := &scanner{text: text}
	s.run(f.at)
	f.scope, f.open, f.shown = *s.top(), s.frames, f.at
	f.translate()
	shown, own := positionOf(text, f.shown), positionOf(text, f.at)
	d := newDiagnostic(f.code, "", fmt.Sprintf("failed to read text proto from %s: %s%d:%d: %s%s",
		path, parserHead, shown.line, shown.column, f.words, f.hint))
	d.File, d.Line, d.Column = path, own.line, own.column
	d.Fix = cmp.Or(f.fix, d.Fix)
	return d.Err()
}

// textFault is a parse error during the conversion.
type textFault struct {
	text  []byte
	at    int // offset of the fault
	shown int // offset that the C++ parser reports
	scope frame
	open  []frame // enclosing messages, outermost first; has capacity for the scope
	code  Code
	words string
	hint  string
	fix   string // replaces the rule's fix
}

func (f *textFault) translate() {
	if m := wrongField.FindStringSubmatch(f.words); m != nil {
		f.unknownField(m[1])
	} else if m := repeated.FindStringSubmatch(f.words); m != nil {
		f.code, f.shown = Repeated, f.nextToken()
		f.words = fmt.Sprintf("Non-repeated field %q is specified multiple times.", m[1])
	} else if m := oneof.FindStringSubmatch(f.words); m != nil {
		f.oneof(m[1], m[2])
	} else if m := wrongValue.FindStringSubmatch(f.words); m != nil {
		f.value(m[1]+m[2], m[3])
	} else {
		f.foreign()
	}
	if len(f.words) > maxWords {
		f.words = strings.ToValidUTF8(f.words[:maxWords], "") + "..."
	}
}

// maxWords bounds the text of a fault to a readable length.
const maxWords = 512

// foreign recognises other formats, for example JSON or YAML.
func (f *textFault) foreign() {
	rest := f.text[f.at:]
	next := f.text[f.nextToken():]
	switch {
	case f.unclosed(), f.messageExpected():
	case bytes.HasPrefix(f.text, []byte("\xef\xbb\xbf")):
		f.hint = ". The file starts with a byte order mark; save it as UTF-8 without one"
	case bytes.HasPrefix(f.text, []byte("\xff\xfe")), bytes.HasPrefix(f.text, []byte("\xfe\xff")):
		f.hint = ". The file is UTF-16; save it as UTF-8"
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")):
		f.hint = ". A comment starts with '#'"
	case len(next) > 0 && next[0] == '=':
		f.hint = ". A value follows a colon"
	case bytes.HasPrefix(bytes.TrimSpace(f.text), []byte("{")):
		f.hint = ". A configuration is protobuf text, not JSON"
	}
}

// nextToken returns the offset of the token after the name at the fault.
func (f *textFault) nextToken() int {
	at := f.at
	if at >= len(f.text) {
		return at
	}
	at += skip(f.text[at:], isName)
	for at < len(f.text) && strings.IndexByte(" \t\r\n#", f.text[at]) >= 0 {
		comment := f.text[at] == '#'
		at += skip(f.text[at:], func(c byte) bool { return comment && c != '\n' })
	}
	return at
}

func (f *textFault) unknownField(name string) {
	desc := f.scope.desc
	if desc == nil {
		desc = root
	}
	f.code, f.shown = UnknownField, f.nextToken()
	f.words = fmt.Sprintf("Message type %q has no field named %q.", desc.FullName(), name)
	if f.hint = DidYouMean(name, fieldNames(desc)); f.hint == "" {
		f.inOuter(name)
	}
}

func (f *textFault) oneof(field, choice string) {
	f.code, f.shown = Repeated, f.nextToken()
	name := choice[strings.LastIndexByte(choice, '.')+1:]
	first := ""
	if f.scope.desc != nil {
		if o := f.scope.desc.Oneofs().ByName(protoreflect.Name(name)); o != nil {
			first = firstOf(f.text[:f.at], o, field)
		}
	}
	f.words = fmt.Sprintf("Field %q is specified along with field %q, another member of oneof %q.", field, first, name)
}

// firstOf returns the field of o, other than the given one, that comes last in text.
func firstOf(text []byte, o protoreflect.OneofDescriptor, other string) string {
	found, last := other, -1
	for i := range o.Fields().Len() {
		name := o.Fields().Get(i).TextName()
		if at := strings.LastIndex(string(text), name); name != other && at > last {
			found, last = name, at
		}
	}
	return found
}

// value describes a value that the field does not accept.
func (f *textFault) value(kind, value string) {
	field := f.scope.field
	fd := f.scope.descriptor()
	f.code = WrongType
	switch {
	case kind == "string":
		f.words = "Expected string, got: " + value
	case kind == "enum" && (value == "" || value[0] == '"' || value[0] == '\''):
		f.words = "Expected integer or identifier, got: " + value
		f.enumHint(fd, strings.Trim(value, `"'`))
	case kind == "enum":
		f.code, f.shown = UnknownEnum, f.nextToken()
		f.words = fmt.Sprintf("Unknown enumeration value of %q for field %q.", value, field)
		f.enumHint(fd, value)
	case kind == "bool" && digits.MatchString(value):
		f.code, f.words = OutOfRange, "Integer out of range ("+value+")"
	case kind == "bool":
		f.shown = f.nextToken()
		f.words = fmt.Sprintf("Invalid value for boolean field %q. Value: %q.", field, value)
		f.hint = DidYouMean(value, []string{"true", "false"})
	case kind == "float" || kind == "double":
		f.words = "Expected double, got: " + value
	case fd != nil && (fd.Kind() == protoreflect.Uint32Kind || fd.Kind() == protoreflect.Uint64Kind) && strings.HasPrefix(value, "-"):
		f.words = "Expected integer, got: -"
	case digits.MatchString(value):
		f.code, f.words = OutOfRange, "Integer out of range ("+value+")"
	default:
		f.words = "Expected integer, got: " + value
	}
}

func (f *textFault) enumHint(fd protoreflect.FieldDescriptor, value string) {
	if fd != nil && fd.Enum() != nil {
		f.hint = DidYouMean(value, enumNames(fd.Enum()))
	}
}

func enumNames(desc protoreflect.EnumDescriptor) (names []string) {
	for i := range desc.Values().Len() {
		names = append(names, string(desc.Values().Get(i).Name()))
	}
	return names
}

func fieldNames(desc protoreflect.MessageDescriptor) (names []string) {
	for i := range desc.Fields().Len() {
		names = append(names, desc.Fields().Get(i).TextName())
	}
	return names
}

// offsetOf returns the byte offset of line:column. Both count from 1; columns count characters.
func offsetOf(text []byte, line, column string) int {
	// Both are digits; an overflow is past the end of the text.
	l, _ := strconv.Atoi(line)
	c, _ := strconv.Atoi(column)
	at := 0
	for ; l > 1 && at < len(text); at++ {
		if text[at] == '\n' {
			l--
		}
	}
	for ; c > 1 && at < len(text); c-- {
		_, n := utf8.DecodeRune(text[at:])
		at += n
	}
	return at
}

// unclosed looks for a bracket or brace that is still open at the end of the text, or where another kind closes.
// The fault's position is then the opening one.
func (f *textFault) unclosed() bool {
	top := &f.open[len(f.open)-1]
	ends := strings.TrimSpace(string(f.text[f.at:])) == ""
	switch {
	case top.list && (ends || f.text[f.at] == '}'):
		f.hint = fmt.Sprintf(". The list of '%s'%s has no closing ']'", top.field, f.from(top.offset))
		f.at, f.fix = top.offset, "close the list with ']'"
	case ends && len(f.open) > 1:
		f.openMessage(len(f.open) - 1)
	default:
		return false
	}
	return true
}

// openMessage reports that a message is not closed.
func (f *textFault) openMessage(i int) {
	begins := f.open[i].begins
	f.hint = fmt.Sprintf(". '%s'%s has no closing '}'", f.open[i-1].field, f.from(begins))
	f.at, f.fix = begins, "close it with '}'"
}

// from returns a position as " at line:column".
func (f *textFault) from(offset int) string {
	at := positionOf(f.text, offset)
	return fmt.Sprintf(" at %d:%d", at.line, at.column)
}

// inOuter looks for an unknown field in the enclosing messages: a closing brace is probably missing before it.
func (f *textFault) inOuter(name string) {
	for i := len(f.open) - 2; i >= 0; i-- {
		desc := f.open[i].desc
		if desc == nil || desc.Fields().ByTextName(name) == nil {
			continue
		}
		around := "the configuration"
		if i > 0 {
			around = "'" + f.open[i-1].field + "' around it"
		}
		f.openMessage(i + 1)
		f.hint = fmt.Sprintf(" '%s' is a field of %s%s", name, around, f.hint)
		return
	}
}

// messageExpected explains the syntax of a message if a scalar value stands in its place.
func (f *textFault) messageExpected() bool {
	fd := f.scope.descriptor()
	if fd == nil || !f.scope.value || fd.Kind() != protoreflect.MessageKind {
		return false
	}
	f.fix = "write " + f.scope.field + " { ... }"
	f.code, f.hint = WrongType, fmt.Sprintf(". '%s' is a message", f.scope.field)
	return true
}

// aliases maps words of other tools to fields.
var aliases = map[string]string{
	"shape": "dims", "dtype": "data_type", "type": "data_type", "datatype": "data_type",
	"count": "num_versions", "model": "model_name", "version": "model_version",
}

// valueAliases maps data type names of other tools.
var valueAliases = map[string]string{
	"TYPE_BYTES": "TYPE_STRING", "TYPE_FLOAT": "TYPE_FP32", "TYPE_DOUBLE": "TYPE_FP64", "TYPE_HALF": "TYPE_FP16",
	"TYPE_FLOAT32": "TYPE_FP32", "TYPE_FLOAT64": "TYPE_FP64", "TYPE_FLOAT16": "TYPE_FP16", "TYPE_BFLOAT16": "TYPE_BF16",
	"TYPE_INT": "TYPE_INT32", "TYPE_LONG": "TYPE_INT64",
}

// DidYouMean returns " Did you mean ...?" with the name nearest to written, or "" if none is near.
func DidYouMean(written string, names []string) string {
	if best := nearest(written, names); best != "" {
		return " Did you mean \"" + best + "\"?"
	}
	return ""
}

// nearest returns the name that written most likely stands for, or "".
func nearest(written string, names []string) string {
	if written == "" || len(written) > maxNameSize {
		return ""
	}
	low := strings.ToLower(written)
	for _, name := range names {
		if name == aliases[low] || name == valueAliases[strings.ToUpper(written)] || name == valueAliases["TYPE_"+strings.ToUpper(written)] {
			return name
		}
	}
	most := min(max(1, len(written)/3), len(written)-1) // a name of one letter resembles every other one
	return closest(names, most, func(name string) int { return wordDistance(low, strings.ToLower(name)) })
}

// Nearest returns the name with the smallest edit distance from written, the first of several. It returns "" if all
// distances exceed most.
func Nearest(written string, names []string, most int) string {
	return closest(names, most, func(name string) int {
		if d := len(written) - len(name); d > most || -d > most {
			return most + 1
		}
		return distance(written, name)
	})
}

// closest returns the first name with the smallest distance up to most, or "".
func closest(names []string, most int, edits func(name string) int) string {
	best, least := "", most+1
	for _, name := range names {
		if d := edits(name); d < least {
			best, least = name, d
		}
	}
	return best
}

// maxNameSize bounds the names that are compared. No field name is longer.
const maxNameSize = 64

// wordDistance is the edit distance between two names. A name that is a whole word at the start or end of the other
// has distance 1.
func wordDistance(a, b string) int {
	for _, pair := range [2][2]string{{a, b}, {b, a}} {
		if len(pair[0]) > 2 && (strings.HasPrefix(pair[1], pair[0]+"_") || strings.HasSuffix(pair[1], "_"+pair[0])) {
			return 1
		}
	}
	return distance(a, b)
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, last+1, row[j]+1)
		}
	}
	return row[len(b)]
}
