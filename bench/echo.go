package main

import (
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

// envEchoFar has the gRPC address of another echo, to which the model farModel is passed on.
const (
	envEchoFar = "BENCH_ECHO_FAR"
	farModel   = "remote"
)

// serveEcho is the lower bound that the server is compared with: net/http returns the request's body, grpc-go
// returns its tensor, and nothing else runs. It listens on the addresses in BENCH_ECHO and BENCH_ECHO_GRPC.
func serveEcho() error {
	l, err := net.Listen("tcp", os.Getenv("BENCH_ECHO_GRPC"))
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	var service echoService
	if far := os.Getenv(envEchoFar); far != "" {
		conn, err := grpc.NewClient("passthrough:///"+far, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		service.far = inference.NewGRPCInferenceServiceClient(conn)
	}
	inference.RegisterGRPCInferenceServiceServer(g, service)
	failed := make(chan error, 2)
	go func() { failed <- g.Serve(l) }()
	go func() { failed <- serveHTTPEcho() }()
	return <-failed
}

func serveHTTPEcho() error {
	pool := sync.Pool{New: func() any { return new([]byte) }}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return // the health check
		}
		body := pool.Get().(*[]byte) //nolint:errcheck,forcetypeassert // the pool holds nothing else
		defer pool.Put(body)
		*body = slices.Grow((*body)[:0], int(r.ContentLength))[:r.ContentLength]
		if _, err := io.ReadFull(r.Body, *body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.URL.Path == parsingPath {
			response, err := parseAndPrint(*body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			*body = append((*body)[:0], response...)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(*body)))
		if _, err := w.Write(*body); err != nil {
			return
		}
	})
	s := &http.Server{Addr: os.Getenv("BENCH_ECHO"), Handler: handler, ReadHeaderTimeout: time.Minute}
	return s.ListenAndServe()
}
