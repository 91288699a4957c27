package options_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/options"
)

// TestClientOptions checks what tells clients apart, their weights, and what wrong settings are answered with.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--client-key=cookie":                            "invalid argument for --client-key: 'cookie' tells no clients apart, expected header:NAME, identity or address",
		"--client-key=header:":                           "invalid argument for --client-key: 'header:' tells no clients apart, expected header:NAME, identity or address",
		"--client-key=identity":                          "--client-key=identity needs --auth-file, which has the names",
		"--client-weights=a=1":                           "--client-weights needs --client-key, which tells clients apart",
		"--client-key=address --client-weights=a":        "invalid argument for --client-weights: 'a' is no weight of a client, expected CLIENT=WEIGHT, for example alice=3",
		"--client-key=address --client-weights=a=0":      "invalid argument for --client-weights: the weight of client 'a' is '0', expected a number from 0.001 to 1000000",
		"--client-key=address --client-weights=a=1,a=2":  "invalid argument for --client-weights: client 'a' has two weights, expected one",
		"--client-key=address --client-weights=a=Inf":    "invalid argument for --client-weights: the weight of client 'a' is 'Inf', expected a number from 0.001 to 1000000",
		"--client-key=address --client-weights=a=NaN":    "invalid argument for --client-weights: the weight of client 'a' is 'NaN', expected a number from 0.001 to 1000000",
		"--client-key=header:X --client-weights==1,*=15": "invalid argument for --client-weights: '=1' is no weight of a client, expected CLIENT=WEIGHT, for example alice=3",
	} {
		if _, err := options.Parse(append(strings.Fields(args), "--model-repository=m"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	o, err := options.Parse([]string{"--model-repository=m", "--client-key=header:X-Client", "--client-weights=a=3,b=0.5", "--client-weights=*=2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := o.Limits.Shares()
	if s.Header() != "x-client" {
		t.Errorf("the header is %q, want x-client", s.Header())
	}
	for client, want := range map[string]float64{"a": 3, "b": 0.5, "c": 2} {
		if got := s.Of([]string{client}, "", "", 1); got.Weight != want || got.Name != client {
			t.Errorf("client %s has weight %v, want %v", got.Name, got.Weight, want)
		}
	}
	if o, err = options.Parse([]string{"--model-repository=m"}, nil); err != nil || o.Limits.Shares() != nil {
		t.Errorf("without --client-key clients are told apart, %v", err)
	}
}
