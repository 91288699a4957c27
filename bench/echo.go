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

	"github.com/tutti-server/tutti/proto/inference"
)

// serveEcho is the floor: net/http handing a body back, grpc-go handing a tensor back,
// and nothing else. It listens where BENCH_ECHO and BENCH_ECHO_GRPC say.
func serveEcho() error {
	l, err := net.Listen("tcp", os.Getenv("BENCH_ECHO_GRPC"))
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	inference.RegisterGRPCInferenceServiceServer(g, echoService{})
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
			answer, err := parseAndPrint(*body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			*body = append((*body)[:0], answer...)
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
