package grpcapi

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
)

// Keepalive says how connections are kept and how long.
type Keepalive struct {
	// Time is after how long without a sign of life a client is pinged, and Timeout
	// how long it may take to answer; 0 for two hours and 20 s.
	Time, Timeout time.Duration
	// PermitWithoutCalls lets clients ping when they have no call under way.
	PermitWithoutCalls bool
	// MinPingInterval is how often a client may ping during a call; 0 for 5 minutes.
	// Pings that come sooner close the connection, the third one in a row.
	MinPingInterval time.Duration
	// AnyPings takes pings as often as clients like.
	AnyPings bool
	// MaxAge is how long a connection lives, with a random tenth more or less, and
	// MaxAgeGrace how long its calls may take after; 0 for without end.
	MaxAge, MaxAgeGrace time.Duration
}

// Compression is how hard answers are compressed.
type Compression uint8

// The levels of compression.
const (
	CompressNone Compression = iota
	CompressLow
	CompressMedium
	CompressHigh
)

// ParseCompression reads a level: none, low, medium or high.
func ParseCompression(s string) (Compression, error) {
	for c, name := range []string{"none", "low", "medium", "high"} {
		if s == name {
			return Compression(c), nil
		}
	}
	return 0, fmt.Errorf("invalid compression level '%s', expected none, low, medium or high", s)
}

// gzipName is what grpc calls the compression of answers, which this import registers.
const gzipName = grpcgzip.Name

// maxHeaders bounds a call's metadata, far above what clients send.
const maxHeaders = 64 << 10

// options turns the settings into grpc's. The protocol's tensors are as large as a
// message may be.
func options(set *Settings) []grpc.ServerOption {
	k := &set.Keepalive
	most := set.MaxMessage
	if most <= 0 || most > math.MaxInt32 {
		most = math.MaxInt32
	}
	if limit := set.InFlight.Limit(); limit > 0 {
		most = int(min(int64(most), limit))
	}
	enforce := keepalive.EnforcementPolicy{MinTime: k.MinPingInterval, PermitWithoutStream: k.PermitWithoutCalls}
	if k.AnyPings {
		enforce = keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}
	}
	list := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(set.InFlight)),
		grpc.MaxRecvMsgSize(most),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: k.Time, Timeout: k.Timeout, MaxConnectionAge: k.MaxAge, MaxConnectionAgeGrace: k.MaxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(enforce),
		grpc.RPCDecompressor(inflater{max: most}), //nolint:staticcheck // the other way is a table of the whole process
	}
	if len(set.Restricted) > 0 {
		list = append(list, grpc.InTapHandle(restrict(set.Restricted)))
	}
	var secured credentials.TransportCredentials
	if set.TLS != nil {
		secured = credentials.NewTLS(set.TLS)
	}
	if secured = counted(secured, set.InFlight, set.StallTimeout); secured != nil {
		list = append(list, grpc.Creds(secured))
	}
	set.Compression.apply()
	return list
}

var gzipLevel sync.Mutex

// apply sets the level of grpc's gzip, which is one for the whole process: the last
// server made with a level sets it.
func (c Compression) apply() {
	level, ok := map[Compression]int{
		CompressLow: gzip.BestSpeed, CompressMedium: gzip.DefaultCompression, CompressHigh: gzip.BestCompression,
	}[c]
	if !ok {
		return
	}
	gzipLevel.Lock()
	defer gzipLevel.Unlock()
	_ = grpcgzip.SetLevel(level) // all of these are levels
}

// inflater reads messages compressed with deflate, in the zlib format that clients use.
type inflater struct{ max int }

var _ grpc.Decompressor = inflater{} //nolint:staticcheck // see options

// Type is the compression's name on the wire.
func (inflater) Type() string { return "deflate" }

// Do reads at most one byte more than a message may have, which grpc then refuses.
func (i inflater) Do(r io.Reader) ([]byte, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return readPieces(io.LimitReader(z, int64(i.max)+1))
}

// readPieces is io.ReadAll without its copies of all that it has read so far, of which
// a large message would leave several times its size behind.
func readPieces(r io.Reader) ([]byte, error) {
	var list [][]byte
	piece := make([]byte, 0, 4<<10)
	for {
		n, err := r.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		switch {
		case err == io.EOF:
			return slices.Concat(append(list, piece)...), nil
		case err != nil:
			return nil, err
		case len(piece) == cap(piece):
			list = append(list, piece)
			piece = make([]byte, 0, min(2*cap(piece), 16<<20))
		}
	}
}
