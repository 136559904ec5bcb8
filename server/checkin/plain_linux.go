package checkin

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// plainHeaders is how many header lines a plain request has at most: an agent sends
// some ten.
const plainHeaders = 16

// plain is a request and what belongs to it, which the next one takes over: handlers
// let go of a request when they return, and change nothing in it. Its texts are its own.
type plain struct {
	request http.Request
	url     url.URL
	// names are those of the header lines, in their order. Agents send the same each
	// time, so header nearly always stays as it is, and only what its values point to
	// is new.
	names  []string
	values [plainHeaders]string // at the index of their names
	header http.Header
}

// read is http.ReadRequest for a request that is there as a whole, with nothing behind
// it, and is spelled as agents spell it; nil: something about it is not plain, and
// measure and ReadRequest have to see what it means. That takes a tenth of what a
// check-in costs, and half of what it allocates. The request has no body yet, which is
// what is behind the head.
func (p *plain) read(ctx context.Context, text []byte) (r *http.Request, head int) {
	end := bytes.Index(text, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, 0
	}
	head = end + len("\r\n\r\n")
	line, rest, _ := strings.Cut(string(text[:end+len("\r\n")]), "\r\n")
	target, isPost := strings.CutPrefix(line, "POST ")
	target, isHTTP := strings.CutSuffix(target, " HTTP/1.1")
	if !isPost || !isHTTP || !isPlainPath(target) {
		return nil, 0
	}
	var host, length string
	n := 0
	for ; rest != ""; n++ {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, isHeader := strings.Cut(line, ":")
		value = strings.Trim(value, " ")
		if !isHeader || !isText(value) || n == plainHeaders || !p.expect(n, name) {
			return nil, 0
		}
		p.values[n] = value
		switch name {
		case "Host":
			host = value
		case "Content-Length":
			length = value
		}
	}
	p.forget(n)
	size, err := strconv.Atoi(length)
	if err != nil || length[0] == '+' || length[0] == '-' || size != len(text)-head || host == "" {
		return nil, 0
	}
	p.request, p.url = *new(http.Request).WithContext(ctx), url.URL{Path: target}
	r = &p.request
	r.Method, r.URL, r.RequestURI, r.Host, r.Header = http.MethodPost, &p.url, target, host, p.header
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength = "HTTP/1.1", 1, 1, int64(size)
	return r, head
}

// expect says whether the nth header line may have this name. If it has not the one of
// the last request, that and all behind it are forgotten.
func (p *plain) expect(n int, name string) bool {
	if n < len(p.names) && p.names[n] == name {
		return true
	}
	p.forget(n)
	if !isCanonical(name) || slices.Contains(p.names, name) {
		return false
	}
	switch name {
	case "Connection", "Pragma", "Trailer", "Transfer-Encoding", "Expect", "Upgrade":
		return false
	}
	if p.header == nil {
		p.header = make(http.Header, plainHeaders/2)
	}
	p.names = append(p.names, name)
	if name != "Host" { // which is no header to net/http
		p.header[name] = p.values[n : n+1 : n+1]
	}
	return true
}

// forget drops all names but the first n.
func (p *plain) forget(n int) {
	for _, name := range p.names[n:] {
		delete(p.header, name)
	}
	p.names = p.names[:n]
}

// isPlainPath says that a path means what it says: nothing in it is escaped, and
// nothing is behind it.
func isPlainPath(target string) bool {
	for _, c := range []byte(target) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', 'A' <= c && c <= 'Z', c == '/', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return strings.HasPrefix(target, "/")
}

// isCanonical says that a header's name is spelled as http.Header spells it.
func isCanonical(name string) bool {
	begins := true
	for _, c := range []byte(name) {
		switch {
		case '0' <= c && c <= '9', c == '-', begins && 'A' <= c && c <= 'Z', !begins && 'a' <= c && c <= 'z':
		default:
			return false
		}
		begins = c == '-'
	}
	return name != ""
}

// isText says that nothing in a line, or a part of it, controls anything.
func isText[T string | []byte](line T) bool {
	for i := range len(line) {
		if c := line[i]; c < ' ' || c == 0x7f { // a lone end of line, too, and a tab, which may continue one
			return false
		}
	}
	return true
}
