// Command fakes3 serves buckets in memory over the protocol of S3 on a loopback port
// that it prints, until its standard input ends. Tests read models from it.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves the buckets of the given names.
func run(buckets []string) error {
	store := s3mem.New()
	for _, name := range buckets {
		if err := store.CreateBucket(name); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	_ = http.Serve(l, gofakes3.New(store).Server()) //nolint:gosec // it ends with its test
	return nil
}
