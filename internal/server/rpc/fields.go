package rpc

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Header blocks use HPACK's static table only. So they need no state, and blocks of different calls may be made in any order.

const (
	indexOK           = 0x88 // :status 200 in the static table
	indexStatus       = 8
	indexContentType  = 31
	detailsHeader     = "grpc-status-details-bin"
	perField          = 32 // what HTTP/2 counts for a field besides its text
	statusHeader      = "grpc-status"
	messageHeader     = "grpc-message"
	encodingHeader    = "grpc-encoding"
	resizeTableToZero = 0x20
)

// okHeader and okTrailer are the blocks of most responses.
var (
	okHeader  = string(appendContentType([]byte{indexOK}, ""))
	okTrailer = string(appendField(appendField(nil, statusHeader, "0"), messageHeader, ""))
)

// fields collects a header block.
type fields struct {
	b    []byte
	size int64 // as HTTP/2 counts it
}

func (f *fields) add(name, value string) {
	f.b = appendField(f.b, name, value)
	f.size += int64(len(name) + len(value) + perField)
}

// addMD adds metadata. Fields that gRPC has for itself are left out.
func (f *fields) addMD(md metadata.MD, but string) {
	for name, values := range md {
		if reserved(name) || name == but {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, binSuffix) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			f.add(name, v)
		}
	}
}

func reserved(name string) bool {
	switch name {
	case "", "content-type", "user-agent", "grpc-message-type", encodingHeader, messageHeader, statusHeader, "grpc-timeout", "te":
		return true
	}
	return name[0] == ':'
}

// begin adds the fields before the first message.
func (f *fields) begin(subtype string, status int) {
	if status == statusFine {
		f.b = append(f.b, indexOK)
	} else {
		f.b = appendString(appendInt(f.b, 0, 4, indexStatus), strconv.Itoa(status))
	}
	f.b = appendContentType(f.b, subtype)
	f.size += int64(len(":status") + 3 + len("content-type") + len(contentTypeGRPC) + len(subtype) + 1 + 2*perField)
}

// end adds the status.
func (f *fields) end(st *grpcstatus.Status, trailer metadata.MD) {
	f.add(statusHeader, strconv.Itoa(int(st.Code())))
	f.add(messageHeader, escape(st.Message()))
	but := ""
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			f.add(detailsHeader, base64.RawStdEncoding.EncodeToString(b))
			but = detailsHeader
		}
	}
	f.addMD(trailer, but)
}

func appendContentType(b []byte, subtype string) []byte {
	b = appendInt(b, 0, 4, indexContentType)
	if subtype == "" {
		return appendString(b, contentTypeGRPC)
	}
	return appendString(b, contentTypeGRPC+"+"+subtype)
}

// appendField appends a field that enters no table.
func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0), name), value)
}

func appendString(b []byte, s string) []byte { return append(appendInt(b, 0, 7, len(s)), s...) }

// appendInt appends an integer with a prefix of bits bits.
func appendInt(b []byte, first byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n)) //nolint:gosec // less than 256
	}
	b = append(b, first|byte(most)) //nolint:gosec // as above
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80) //nolint:gosec // the low bits
	}
	return append(b, byte(n)) //nolint:gosec // less than 128
}

// appendBlock appends a header block as HEADERS, and CONTINUATION if it is long.
func (c *conn) appendBlock(b []byte, id uint32, block string, last bool) []byte {
	c.sent = true
	if c.noTable {
		c.noTable, c.saidNoTable = false, true
		block = string(rune(resizeTableToZero)) + block
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), minMaxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(appendHead(b, n, kind, flags, id), block[:n]...)
		if block = block[n:]; block == "" {
			return b
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

var errTooManyHeaders = grpcstatus.Error(codes.Internal, "transport: trying to send header list size larger than the limit set by peer")

// plainHeaders is more than okHeader and okTrailer have, as HTTP/2 counts them.
const plainHeaders = 256

// limits reports whether the client's limit of headers may matter for those of most responses. mu must be held.
func (c *conn) limits() bool { return c.limited && c.maxHeaders < plainHeaders }

// tooLarge reports whether the client accepts no such header block. mu must be held.
func (c *conn) tooLarge(f *fields) bool { return c.limited && f.size > c.maxHeaders }

// sendHeader appends the headers of a call, or resets it if they are too large for the client. mu must be held.
func (c *conn) sendHeader(s *stream) error {
	s.headerSent = true
	if len(s.header) == 0 && s.sendCompress == "" && s.head.subtype == "" && !c.limits() {
		c.out = c.appendBlock(c.out, s.id, okHeader, false)
		return nil
	}
	var f fields
	f.begin(s.head.subtype, statusFine)
	if s.sendCompress != "" {
		f.add(encodingHeader, s.sendCompress)
	}
	f.addMD(s.header, "")
	if c.tooLarge(&f) {
		c.resetLocked(s, http2.ErrCodeInternal)
		return errTooManyHeaders
	}
	c.out = c.appendBlock(c.out, s.id, string(f.b), false)
	return nil
}

// appendStatus appends the status of a call, behind its messages, and reports false if the client does not accept its headers. mu must be held.
func (c *conn) appendStatus(s *stream, st *grpcstatus.Status) bool {
	block := okTrailer
	if !s.headerSent && len(s.header) > 0 {
		s.done = false // sendHeader may reset it
		if c.sendHeader(s) != nil {
			return true
		}
		s.done = true
	}
	if st.Code() != codes.OK || len(s.trailer) > 0 || !s.headerSent || c.limits() {
		var f fields
		if !s.headerSent {
			s.headerSent = true
			f.begin(s.head.subtype, statusFine)
		}
		f.end(st, s.trailer)
		if c.tooLarge(&f) {
			return false
		}
		block = string(f.b)
	}
	to := &c.out
	if len(s.out) > 0 {
		to = &s.tail
	}
	*to = c.appendBlock(*to, s.id, block, true)
	if !s.ended {
		*to = appendReset(*to, s.id, http2.ErrCodeNo)
	}
	return true
}

// appendRefusal refuses a call that has not begun. mu must be held.
func (c *conn) appendRefusal(id uint32, subtype string, st *grpcstatus.Status, status int, open bool) {
	var f fields
	f.begin(subtype, status)
	f.end(st, nil)
	if c.tooLarge(&f) {
		c.appendReset(id, http2.ErrCodeInternal)
		return
	}
	c.out = c.appendBlock(c.out, id, string(f.b), true)
	if open {
		c.appendReset(id, http2.ErrCodeNo)
	}
}

// validate returns the error of metadata that cannot be sent.
func validate(md metadata.MD) error {
	for name, values := range md {
		switch {
		case name == "":
			return grpcstatus.Error(codes.Internal, "there is an empty key in the header")
		case name[0] == ':':
			continue
		case strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
		}):
			return grpcstatus.Error(codes.Internal, fmt.Sprintf("header key %q contains illegal characters not in [0-9a-z-_.]", name))
		case strings.HasSuffix(name, binSuffix):
			continue
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
				return grpcstatus.Error(codes.Internal, fmt.Sprintf("header key %q contains value with non-printable ASCII characters", name))
			}
		}
	}
	return nil
}

// escape returns a message with its bytes other than printable ASCII as %XX, in valid UTF-8.
func escape(text string) string {
	plain := true
	for i := range len(text) {
		if b := text[i]; b < ' ' || b > '~' || b == '%' {
			plain = false
			break
		}
	}
	if plain {
		return text
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, r := range text { // an invalid byte is U+FFFD
		var bytes [utf8.UTFMax]byte
		for _, v := range bytes[:utf8.EncodeRune(bytes[:], r)] {
			if v < ' ' || v > '~' || v == '%' {
				b.WriteByte('%')
				b.WriteByte(digits[v>>4])
				b.WriteByte(digits[v&15])
			} else {
				b.WriteByte(v)
			}
		}
	}
	return b.String()
}
