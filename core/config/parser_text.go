package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"tutti/proto/modelconfig"
)

var (
	parserError = regexp.MustCompile(`(?s)^(?:syntax error )?\(line (\d+):(\d+)\): (.*)$`)
	wrongValue  = regexp.MustCompile(`^invalid (?:scalar value|value for (\w+) type): (.*)$`)
	wrongField  = regexp.MustCompile(`^unknown (?:map entry )?field:? "?([^":]*)"?$`)
	repeated    = regexp.MustCompile(`^non-repeated field "([^"]*)" is repeated$`)
	digits      = regexp.MustCompile(`^-?\d+$`)
)

// parserText turns an error of Go's text parser into the words of the C++ one,
// which is what tools that read Triton's log match on.
func parserText(text []byte, err error) string {
	// Go's protobuf writes its prefix with a random kind of space, so that nobody
	// depends on the text by accident.
	msg := strings.Trim(strings.TrimPrefix(err.Error(), "proto:"), " \t\r\n\u00a0")
	const head = "Error parsing text-format inference.ModelConfig: "
	m := parserError.FindStringSubmatch(msg)
	if m == nil {
		return head + msg
	}
	at := m[1] + ":" + m[2] + ": "
	if f := wrongField.FindStringSubmatch(m[3]); f != nil {
		return fmt.Sprintf(`%s%sMessage type %q has no field named %q.`, head, at, scopeAt(text, m[1], m[2]), f[1])
	}
	return head + at + valueText(m[3])
}

func valueText(msg string) string {
	if f := repeated.FindStringSubmatch(msg); f != nil {
		return fmt.Sprintf("Non-repeated field %q is specified multiple times.", f[1])
	}
	m := wrongValue.FindStringSubmatch(msg)
	if m == nil {
		return msg
	}
	kind, value := m[1], m[2]
	switch kind {
	case "string":
		return "Expected string, got: " + value
	case "enum":
		return "Unknown enumeration value of \"" + value + "\"."
	case "bool":
		return "Invalid value for boolean field. Value: \"" + value + "\"."
	case "float", "double":
		return "Expected double, got: " + value
	}
	if digits.MatchString(value) {
		return "Integer out of range (" + value + ")"
	}
	return "Expected integer, got: " + value
}

// frame is one open message while scanning: its type, nil when unknown, and the
// last name seen in it.
type frame struct {
	desc protoreflect.MessageDescriptor
	name string
}

// scopeAt returns the type of the message that is open at line:column of text.
func scopeAt(text []byte, line, column string) string {
	text = text[:offsetOf(text, line, column)]
	frames := []frame{{desc: (*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor()}}
	for len(text) > 0 {
		top := &frames[len(frames)-1]
		n := 1
		switch c := text[0]; {
		case c == '#':
			n = skip(text, func(c byte) bool { return c != '\n' })
		case c == '"' || c == '\'':
			n = quoted(text)
		case isName(c):
			n = skip(text, isName)
			top.name = string(text[:n])
		case c == '{' || c == '<':
			frames = append(frames, frame{desc: child(top)})
		case (c == '}' || c == '>') && len(frames) > 1:
			frames = frames[:len(frames)-1]
		}
		text = text[n:]
	}
	if d := frames[len(frames)-1].desc; d != nil {
		return string(d.FullName())
	}
	return string(frames[0].desc.FullName())
}

func child(f *frame) protoreflect.MessageDescriptor {
	if f.desc == nil {
		return nil
	}
	if fd := f.desc.Fields().ByTextName(f.name); fd != nil {
		return fd.Message()
	}
	return nil
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// skip returns how many leading bytes satisfy ok, at least 1.
func skip(text []byte, ok func(byte) bool) int {
	n := 1
	for n < len(text) && ok(text[n]) {
		n++
	}
	return n
}

// quoted returns the length of the string literal that text starts with.
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

// offsetOf returns the byte at line:column, both counted from 1, columns in characters.
func offsetOf(text []byte, line, column string) int {
	var l, c int
	// Both are digits, as the caller's pattern says.
	_, _ = fmt.Sscan(line, &l)
	_, _ = fmt.Sscan(column, &c)
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
