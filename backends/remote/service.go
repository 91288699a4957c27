package remote

import (
	"encoding/json"
	"strconv"
	"time"

	_ "google.golang.org/grpc/balancer/leastrequest"       // registers least_request_experimental
	_ "google.golang.org/grpc/balancer/ringhash"           // registers ring_hash_experimental
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers weighted_round_robin
	_ "google.golang.org/grpc/health"                      // registers the client of health checks

	"github.com/tutti-server/tutti/proto/inference"
)

// sequenceHeader has the correlation id of a request, which balances sequences.
const sequenceHeader = "tutti-sequence"

// object is an object of a service config.
type object map[string]any

// serviceConfig returns grpc's service config of the settings. For example, those of an idempotent model give:
//
//	{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""},
//	 "methodConfig": [{"name": [{"service": "inference.GRPCInferenceService"}], "retryPolicy": {"maxAttempts": 3, ...}}]}
func (s *settings) serviceConfig() string {
	method := object{"name": []object{{"service": inference.GRPCInferenceService_ServiceDesc.ServiceName}}}
	if s.timeout > 0 {
		method["timeout"] = seconds(s.timeout)
	}
	if s.idempotent {
		method["retryPolicy"] = object{
			"maxAttempts": s.attempts, "initialBackoff": "0.010s", "maxBackoff": "1s", "backoffMultiplier": 3,
			"retryableStatusCodes": []string{"UNAVAILABLE"},
		}
	}
	c := object{"loadBalancingConfig": []object{s.balancer()}, "methodConfig": []object{method}}
	if s.health {
		c["healthCheckConfig"] = object{"serviceName": ""}
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // unreachable: texts and numbers
	}
	return string(b)
}

// balancer returns the balancing policy.
func (s *settings) balancer() object {
	policy := object{roundRobin: object{}}
	switch s.balancing {
	case weighted:
		o := object{"blackoutPeriod": "1s", "weightExpirationPeriod": "60s", "weightUpdatePeriod": "1s"}
		if s.oob {
			o["enableOobLoadReport"], o["oobReportingPeriod"] = true, "10s"
		}
		policy = object{weighted: o}
	case least:
		policy = object{"least_request_experimental": object{"choiceCount": 2}}
	case bySequence:
		policy = object{"ring_hash_experimental": object{"requestHashHeader": sequenceHeader}}
	}
	if !s.outliers {
		return policy
	}
	return object{outlierPolicy: object{
		"interval": seconds(s.outlierInterval), "baseEjectionTime": seconds(s.outlierTime), "maxEjectionPercent": 50,
		"failurePercentageEjection": object{"threshold": s.outlierShare, "enforcementPercentage": 100, "minimumHosts": 2, "requestVolume": s.outlierVolume},
		"childPolicy":               []object{policy},
	}}
}

// seconds returns a duration as a service config has it, for example "0.500s".
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) + "s" }
