//go:build linux

package generator

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// maxHead and maxAnswer bound the answer to an agent: an action has about 1 kB, a
	// policy about 100 kB.
	maxHead   = 16 << 10
	maxAnswer = 4 << 20
	// maxRetryAfter bounds the Retry-After that an agent obeys.
	maxRetryAfter = time.Hour
)

// answer is an HTTP answer. Its body aliases the buffer it was parsed from.
type answer struct {
	status     int
	retryAfter time.Duration // negative: the header is missing
	close      bool          // the server closes the connection
	body       []byte
}

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\r\n")
)

// parseAnswer parses the first HTTP/1.1 answer in b and returns its length, or 0 if it
// is not complete.
func parseAnswer(b []byte) (a answer, n int, err error) {
	end := bytes.Index(b, headEnd)
	if end < 0 {
		if len(b) > maxHead {
			return a, 0, fmt.Errorf("the head of an answer has more than %d bytes", maxHead)
		}
		return a, 0, nil
	}
	status, rest, _ := bytes.Cut(b[:end], lineEnd)
	if len(status) < 12 || !bytes.HasPrefix(status, []byte("HTTP/1.")) || status[8] != ' ' {
		return a, 0, fmt.Errorf("an answer begins with %q, want HTTP/1.1 and a status", clip(status))
	}
	if a.status, err = strconv.Atoi(string(status[9:12])); err != nil || a.status < 200 {
		return a, 0, fmt.Errorf("an answer has the status %q", clip(status))
	}
	a.retryAfter = -1
	a.close = status[7] == '0'
	length, chunked := -1, false
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, lineEnd)
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return a, 0, fmt.Errorf("an answer has the length %q, want at most %d", clip(value), maxAnswer)
			}
		case is(name, "transfer-encoding"):
			chunked = is(value, "chunked")
		case is(name, "connection"):
			a.close = a.close || is(value, "close")
		case is(name, "retry-after"):
			if s, err := strconv.Atoi(string(value)); err == nil && s >= 0 {
				a.retryAfter = min(time.Duration(s)*time.Second, maxRetryAfter)
			}
		}
	}
	at := end + len(headEnd)
	switch {
	case chunked:
		body, size, err := dechunk(b[at:])
		if size == 0 || err != nil {
			return a, 0, err
		}
		a.body = body
		return a, at + size, nil
	case length < 0 && a.status == 204:
		length = 0
	case length < 0:
		return a, 0, errors.New("an answer has neither a length nor chunks")
	}
	if len(b) < at+length {
		return a, 0, nil
	}
	a.body = b[at : at+length]
	return a, at + length, nil
}

// dechunk returns the body of a chunked answer and its size on the wire, or a size of 0
// if it is not complete. It ignores trailers.
func dechunk(b []byte) (body []byte, size int, err error) {
	at := 0
	for {
		line, _, whole := bytes.Cut(b[at:], lineEnd)
		if !whole {
			if len(line) > maxHead {
				return nil, 0, errors.New("a chunk of an answer does not say its size")
			}
			return nil, 0, nil
		}
		digits, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 16, 32)
		if err != nil || len(body)+int(n) > maxAnswer {
			return nil, 0, fmt.Errorf("a chunk of an answer has the size %q", clip(line))
		}
		at += len(line) + len(lineEnd)
		if n == 0 {
			break
		}
		if len(b) < at+int(n)+len(lineEnd) {
			return nil, 0, nil
		}
		body = append(body, b[at:at+int(n)]...)
		at += int(n) + len(lineEnd)
	}
	for {
		line, _, whole := bytes.Cut(b[at:], lineEnd)
		if !whole {
			return nil, 0, nil
		}
		at += len(line) + len(lineEnd)
		if len(line) == 0 {
			return body, at, nil
		}
	}
}

// is reports whether b equals lower, a lowercase text, ignoring case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// clip shortens a server's answer for an error text.
func clip(b []byte) []byte { return b[:min(len(b), 200)] }

// requestHead has the parts of the head of an agent's request.
type requestHead struct {
	host, version, key, id, call string
	number                       uint64 // of the request id, which is id-number
}

// appendRequest appends the head of a POST whose body has the given length.
func appendRequest(b []byte, h requestHead, length int) []byte {
	b = append(b, "POST "+pathBeforeID...)
	b = append(b, h.id...)
	b = append(b, '/')
	b = append(b, h.call...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, h.host...)
	b = append(b, "\r\nUser-Agent: Elastic Agent v"...)
	b = append(b, h.version...)
	b = append(b, "\r\n"+agentapi.HeaderAPIVersion+": "+agentapi.APIVersion+"\r\nContent-Type: application/json\r\nAuthorization: ApiKey "...)
	b = append(b, h.key...)
	b = append(b, "\r\n"+agentapi.HeaderRequestID+": "...)
	b = append(b, h.id...)
	b = append(b, '-')
	b = strconv.AppendUint(b, h.number, 10)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(length), 10)
	return append(b, headEnd...)
}

// pathBeforeID is the beginning of the paths of an agent's calls; see agentapi.
const pathBeforeID = "/api/fleet/agents/"
