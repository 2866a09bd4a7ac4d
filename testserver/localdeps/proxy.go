package localdeps

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Faults are what a request through a Proxy meets. Shares are probabilities
// between 0 and 1; the zero value is a good connection.
type Faults struct {
	LoseRequest float64       // the connection breaks before the request arrives
	LoseReply   float64       // the request is applied and the connection breaks
	Duplicate   float64       // the request is applied again, up to DuplicateAfter later
	Throttle    float64       // ProvisionedThroughputExceededException
	Conflict    float64       // TransactionConflictException
	Delay       time.Duration // upper bound, before the request is passed on

	DuplicateAfter time.Duration
	Outage         bool // every connection breaks
}

// Proxy stands between clients and a DynamoDB.
type Proxy struct {
	URL string

	target     string
	server     *httptest.Server
	duplicates sync.WaitGroup // duplicates under way

	mu     sync.Mutex
	faults Faults
	counts map[string]int
}

// StartProxy begins to pass on requests to target, a URL. The caller calls
// Close.
func StartProxy(target string) *Proxy {
	p := &Proxy{target: target, counts: map[string]int{}}
	p.server = httptest.NewServer(p)
	p.URL = p.server.URL
	return p
}

// Close breaks what is under way.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
	p.duplicates.Wait()
}

// Set replaces the faults for the requests that follow.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Counts tells how many requests met what, "passed" among them.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]int, len(p.counts))
	for what, n := range p.counts {
		out[what] = n
	}
	return out
}

func (p *Proxy) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
}

// ServeHTTP passes on one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	f := p.faults
	p.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if f.Delay > 0 {
		time.Sleep(rand.N(f.Delay))
	}
	switch {
	case f.Outage || rand.Float64() < f.LoseRequest:
		p.count("lost")
		panic(http.ErrAbortHandler)
	case rand.Float64() < f.Throttle:
		p.count("throttled")
		refuse(w, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException")
		return
	case rand.Float64() < f.Conflict:
		p.count("conflicting")
		refuse(w, "com.amazonaws.dynamodb.v20120810#TransactionConflictException")
		return
	}
	status, header, reply, err := p.forward(r.Header, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if rand.Float64() < f.Duplicate {
		p.count("duplicated")
		p.duplicates.Go(func() {
			time.Sleep(rand.N(f.DuplicateAfter + 1))
			_, _, _, _ = p.forward(r.Header, body) // nobody waits for it
		})
	}
	if rand.Float64() < f.LoseReply {
		p.count("unanswered")
		panic(http.ErrAbortHandler)
	}
	p.count("passed")
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(reply) // the client is gone, which is its affair
}

func (p *Proxy) forward(header http.Header, body []byte) (int, http.Header, []byte, error) {
	request, err := http.NewRequest(http.MethodPost, p.target, bytes.NewReader(body)) //nolint:noctx // a late duplicate has no caller
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header = header.Clone()
	request.Header.Del("Accept-Encoding")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	reply, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, reply, errors.Join(err, response.Body.Close())
}

func refuse(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusBadRequest)
	_, name, _ := strings.Cut(kind, "#")
	_, _ = fmt.Fprintf(w, `{"__type":%q,"message":"%s, by order of the test"}`, kind, name) // as above
}
