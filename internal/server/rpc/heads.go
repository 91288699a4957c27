package rpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// head has the headers of a call. Calls with equal headers share one, so it must not be modified.
type head struct {
	path     string
	method   *method         // nil if it is not known
	md       metadata.MD     // the client's metadata
	ctx      context.Context //nolint:containedctx // the connection's, with md
	subtype  string          // of the content type
	encoding string          // compression of the client's messages
	accepted string          // compressions that the client accepts
	timed    bool            // has timeout
	timeout  time.Duration
	reset    http2.ErrCode      // resets the call, if not 0
	refusal  *grpcstatus.Status // refuses the call, with the status of HTTP
	status   int
	notPost  *grpcstatus.Status // refuses a call of another method of HTTP
	unknownS string             // why the method is not known
}

const (
	statusFine       = http.StatusOK
	statusNotAllowed = http.StatusMethodNotAllowed
)

func (h *head) tapInfo() *tap.Info { return &tap.Info{FullMethodName: h.path, Header: h.md} }

// unknown returns the status of a call of an unknown method.
func (h *head) unknown() *grpcstatus.Status { return grpcstatus.New(codes.Unimplemented, h.unknownS) }

const (
	// knownHeads is how many different headers of calls a connection remembers, each with at most maxKnownBlock bytes.
	knownHeads    = 4
	maxKnownBlock = 1 << 10
)

// heads decodes the headers of a connection's calls. It remembers the last ones by their bytes: clients send the same for each call.
//
// The bytes of HPACK have the same meaning as long as the table that they refer to is the same. So only blocks that do not change the table
// are remembered, and all are forgotten when a block changes it.
type heads struct {
	c       *conn
	decoder *hpack.Decoder
	fields  []hpack.HeaderField
	size    int64 // of the fields, as HTTP/2 counts it
	known   [knownHeads]knownHead
	next    int // in known
}

type knownHead struct {
	block []byte
	head  *head
}

// defaultTable is the size of HPACK's table unless a setting changes it.
const defaultTable = 4 << 10

func (d *heads) init(c *conn) {
	d.c = c
	d.decoder = hpack.NewDecoder(defaultTable, d.emit)
	d.decoder.SetMaxStringLength(int(c.srv.set.MaxHeaders))
}

// emit collects the fields up to the limit. It counts those above it, whose values it drops.
func (d *heads) emit(f hpack.HeaderField) {
	d.size += int64(f.Size())
	if d.size > int64(d.c.srv.set.MaxHeaders) {
		d.decoder.SetEmitEnabled(false)
		return
	}
	d.fields = append(d.fields, f)
}

// decode decodes a header block. An error ends the connection.
//
// hot: no allocation for bytes that came before.
func (d *heads) decode(block []byte) (*head, error) {
	for i := range d.known {
		if k := &d.known[i]; len(block) > 0 && bytes.Equal(k.block, block) {
			return k.head, nil
		}
	}
	d.fields, d.size = d.fields[:0], 0
	d.decoder.SetEmitEnabled(true)
	_, err := d.decoder.Write(block)
	if err == nil {
		err = d.decoder.Close()
	}
	if err != nil {
		return nil, failure(http2.ErrCodeCompression, "the headers cannot be decoded: %v", err)
	}
	h := d.head()
	clear(d.fields)
	switch {
	case changesTable(block):
		d.known, d.next = [knownHeads]knownHead{}, 0
	case len(block) <= maxKnownBlock && h.reset == 0 && h.refusal == nil:
		d.known[d.next] = knownHead{bytes.Clone(block), h}
		d.next = (d.next + 1) % knownHeads
	}
	return h, nil
}

// changesTable reports whether a valid header block adds to the table or resizes it.
func changesTable(p []byte) bool {
	for len(p) > 0 {
		switch first := p[0]; {
		case first&0x80 != 0: // an entry of the table
			_, p = hpackInt(p, 7)
		case first&0xc0 == 0x40, first&0xe0 == 0x20: // a field that is added, or a new size
			return true
		default:
			var name uint64
			if name, p = hpackInt(p, 4); name == 0 {
				p = skipText(p)
			}
			p = skipText(p)
		}
	}
	return false
}

// hpackInt reads an integer with a prefix of bits bits.
func hpackInt(p []byte, bits int) (v uint64, rest []byte) {
	most := uint64(1)<<bits - 1
	v = uint64(p[0]) & most
	if p = p[1:]; v < most {
		return v, p
	}
	for shift := 0; len(p) > 0; shift += 7 {
		b := p[0]
		p = p[1:]
		if v += uint64(b&0x7f) << shift; b&0x80 == 0 {
			break
		}
	}
	return v, p
}

func skipText(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}
	n, p := hpackInt(p, 7)
	return p[min(n, uint64(len(p))):]
}

// head makes the head of the decoded fields. What it refuses, and in which order, is as in grpc.Server.
func (d *heads) head() *head {
	if d.size > int64(d.c.srv.set.MaxHeaders) {
		return &head{reset: http2.ErrCodeFrameSize}
	}
	if !valid(d.fields) {
		return &head{reset: http2.ErrCodeProtocol}
	}
	h := &head{md: make(metadata.MD, len(d.fields))}
	var isGRPC, connection bool
	var verb, contentType string
	var failed *grpcstatus.Status
	for _, f := range d.fields {
		switch f.Name {
		case "content-type":
			sub, ok := subtype(f.Value)
			if !ok {
				contentType = f.Value
				break
			}
			isGRPC, h.subtype = true, sub
			h.add(f.Name, f.Value)
		case "grpc-accept-encoding":
			h.add(f.Name, f.Value)
			if f.Value != "" && h.accepted != "" {
				h.accepted += ","
			}
			h.accepted += f.Value
		case "grpc-encoding":
			h.encoding = f.Value
		case ":method":
			verb = f.Value
		case ":path":
			h.path = f.Value
		case "grpc-timeout":
			var err error
			h.timed = true
			if h.timeout, err = parseTimeout(f.Value); err != nil {
				failed = grpcstatus.Newf(codes.Internal, "malformed grpc-timeout: %v", err)
			}
		case "connection":
			connection = true
		default:
			if err := h.addField(f.Name, f.Value); err != nil {
				failed = grpcstatus.Newf(codes.Internal, "malformed binary metadata %q in header %q: %v", f.Value, f.Name, err)
			}
		}
	}
	refuse := func(status int, st *grpcstatus.Status) *head {
		h.refusal, h.status = st, status
		return h
	}
	authorities, hosts := len(h.md[":authority"]), len(h.md["host"])
	switch {
	case authorities > 1 || hosts > 1:
		return refuse(http.StatusBadRequest, grpcstatus.Newf(codes.Internal,
			"num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec", authorities, hosts))
	case connection:
		return &head{reset: http2.ErrCodeProtocol}
	case !isGRPC:
		return refuse(http.StatusUnsupportedMediaType, grpcstatus.Newf(codes.InvalidArgument, "invalid gRPC request content-type %q", contentType))
	case failed != nil:
		return refuse(http.StatusBadRequest, failed)
	case authorities == 0 && hosts == 0:
		return refuse(http.StatusBadRequest, grpcstatus.New(codes.Internal, "no host or :authority header present"))
	case authorities == 0:
		h.md[":authority"] = h.md["host"]
	}
	delete(h.md, "host")
	if verb != http.MethodPost {
		h.notPost = grpcstatus.Newf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", verb)
	}
	h.ctx = metadata.NewIncomingContext(d.c.base, h.md)
	h.find(d.c.srv)
	return h
}

func (h *head) add(name, value string) { h.md[name] = append(h.md[name], value) }

// addField adds a field to the metadata unless gRPC has it for itself.
func (h *head) addField(name, value string) error {
	switch name {
	case "grpc-message-type", "grpc-message", "grpc-status", "te":
		return nil
	}
	if name[0] == ':' && name != ":authority" {
		return nil
	}
	if strings.HasSuffix(name, binSuffix) {
		b, err := decodeBin(value)
		if err != nil {
			return err
		}
		value = string(b)
	}
	h.add(name, value)
	return nil
}

// find finds the method.
func (h *head) find(s *Server) {
	if h.method = s.methods[h.path]; h.method != nil {
		return
	}
	rest, ok := strings.CutPrefix(h.path, "/")
	at := strings.LastIndexByte(rest, '/')
	switch {
	case !ok || at < 0:
		h.unknownS = fmt.Sprintf("malformed method name: %q", h.path)
	case s.services[rest[:at]] == nil:
		h.unknownS = fmt.Sprintf("unknown service %v", rest[:at])
	default:
		h.unknownS = fmt.Sprintf("unknown method %v for service %v", rest[at+1:], rest[:at])
	}
}

// valid reports whether fields are those of a request: their names and values have the characters of HTTP/2, and pseudo fields come first,
// once.
func valid(fields []hpack.HeaderField) bool {
	regular := false
	for i, f := range fields {
		if !httpguts.ValidHeaderFieldValue(f.Value) {
			return false
		}
		if !f.IsPseudo() {
			regular = true
			if !validName(f.Name) {
				return false
			}
			continue
		}
		if regular {
			return false
		}
		switch f.Name {
		case ":method", ":path", ":scheme", ":authority", ":protocol":
		default:
			return false
		}
		for _, before := range fields[:i] {
			if before.Name == f.Name {
				return false
			}
		}
	}
	return true
}

// validName reports whether a name is a token without upper case.
func validName(name string) bool {
	if name == "" {
		return false
	}
	for _, r := range name {
		if !httpguts.IsTokenRune(r) || 'A' <= r && r <= 'Z' {
			return false
		}
	}
	return true
}

const contentTypeGRPC = "application/grpc"

// subtype returns what follows application/grpc in a content type. For example, it is "proto" for "application/grpc+proto".
func subtype(contentType string) (string, bool) {
	rest, ok := strings.CutPrefix(contentType, contentTypeGRPC)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "", true
	case rest[0] == '+', rest[0] == ';':
		return rest[1:], true
	}
	return "", false
}

const binSuffix = "-bin"

// decodeBin decodes binary metadata, with padding or without.
func decodeBin(v string) ([]byte, error) {
	if len(v)%4 == 0 {
		return base64.StdEncoding.DecodeString(v)
	}
	return base64.RawStdEncoding.DecodeString(v)
}

var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout parses a timeout of gRPC. For example, "250m" is 250 ms.
func parseTimeout(s string) (time.Duration, error) {
	if len(s) < 2 {
		return 0, fmt.Errorf("transport: timeout string is too short: %q", s)
	}
	if len(s) > 9 {
		return 0, fmt.Errorf("transport: timeout string is too long: %q", s)
	}
	unit, ok := timeoutUnits[s[len(s)-1]]
	if !ok {
		return 0, fmt.Errorf("transport: timeout unit is not recognized: %q", s)
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil //nolint:gosec // checked above
}
