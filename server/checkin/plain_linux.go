package checkin

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// plainHeaders is how many header lines a plain request has at most: an agent sends
// some ten.
const plainHeaders = 16

// plain is a request and what belongs to it, which the next one takes over: handlers
// let go of a request when they return. Its texts are its own.
type plain struct {
	request http.Request
	url     url.URL
	header  http.Header
	values  [plainHeaders]string
}

// read is http.ReadRequest for the head of a request that measure has found, spelled
// as agents spell it, with so many bytes behind it; nil: something about it is not
// plain, and ReadRequest has to see what it means. That takes a tenth of what a
// check-in costs, and half of what it allocates. The request has no body yet.
func (p *plain) read(ctx context.Context, head []byte, length int) *http.Request {
	line, rest, _ := strings.Cut(string(head), "\r\n")
	target, isPost := strings.CutPrefix(line, "POST ")
	target, isHTTP := strings.CutSuffix(target, " HTTP/1.1")
	if !isPost || !isHTTP || !isPlainPath(target) {
		return nil
	}
	if p.header == nil {
		p.header = make(http.Header, plainHeaders/2)
	}
	clear(p.header)
	p.request, p.url = *new(http.Request).WithContext(ctx), url.URL{Path: target}
	r := &p.request
	r.Method, r.URL, r.RequestURI, r.Header = http.MethodPost, &p.url, target, p.header
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength = "HTTP/1.1", 1, 1, int64(length)
	for n := 0; ; {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if line == "" {
			break
		}
		name, value, isHeader := strings.Cut(line, ":")
		value = strings.Trim(value, " ")
		switch {
		case !isHeader, !isCanonical(name), name == "Connection", name == "Pragma", name == "Trailer":
			return nil
		case name == "Host":
			if r.Host != "" || value == "" {
				return nil
			}
			r.Host = value
			continue
		case name == "Content-Length" && strings.Trim(value, "0123456789") != "":
			return nil
		}
		if _, again := r.Header[name]; again || n == plainHeaders {
			return nil
		}
		p.values[n] = value
		r.Header[name] = p.values[n : n+1 : n+1]
		n++
	}
	if r.Host == "" {
		return nil
	}
	return r
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
