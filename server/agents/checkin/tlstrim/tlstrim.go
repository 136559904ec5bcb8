// Package tlstrim frees the read buffers of a TLS connection that waits for long.
// crypto/tls keeps them as large as the largest message so far: of a server's
// connection the client's hello with its ML-KEM key, 3.6 KB. Go has no call that frees
// them, so this package reaches into the fields of tls.Conn; there is no other place
// where unsafe is needed.
//
// It writes only to the headers of empty buffers, which crypto/tls then allocates again,
// as for its first read. It does nothing if tls.Conn has an unexpected layout.
package tlstrim

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"reflect"
	"runtime"
	"unsafe"
)

// offsets are where in a tls.Conn its read buffers are, in bytes.
type offsets struct{ rawInput, input, hand uintptr }

var known, errUnknown = find(reflect.TypeFor[tls.Conn]())

// find returns the offsets of the three buffers: fields of these names and types, one
// after the other. With another layout, crypto/tls may also use them differently.
func find(conn reflect.Type) (offsets, error) {
	var p offsets
	index := -1
	for _, want := range []struct {
		name string
		of   reflect.Type
		at   *uintptr
	}{
		{"rawInput", reflect.TypeFor[bytes.Buffer](), &p.rawInput}, // records as received
		{"input", reflect.TypeFor[bytes.Reader](), &p.input},       // the unread rest of a decrypted record, in rawInput's memory
		{"hand", reflect.TypeFor[bytes.Buffer](), &p.hand},         // messages of the handshake
	} {
		f, ok := conn.FieldByName(want.name)
		switch {
		case !ok || len(f.Index) != 1:
			return offsets{}, fmt.Errorf("%s of %s has no field %s", conn, runtime.Version(), want.name)
		case f.Type != want.of:
			return offsets{}, fmt.Errorf("%s of %s has a field %s of type %s, want %s", conn, runtime.Version(), want.name, f.Type, want.of)
		case index >= 0 && f.Index[0] != index+1:
			return offsets{}, fmt.Errorf("%s of %s has its field %s in another place", conn, runtime.Version(), want.name)
		}
		index, *want.at = f.Index[0], f.Offset
	}
	return p, nil
}

// Unable returns why Trim does nothing, nil if it works.
func Unable() error { return errUnknown }

// Trim frees c's empty read buffers. The others do not change, so nothing that c has
// received is lost. No other goroutine may read from c or make its handshake meanwhile.
func Trim(c *tls.Conn) {
	if errUnknown != nil {
		return
	}
	rawInput, input, hand := buffers(c)
	if input.Len() == 0 {
		input.Reset(nil) // it keeps rawInput's memory alive
	}
	for _, b := range []*bytes.Buffer{rawInput, hand} {
		if b.Len() == 0 {
			*b = bytes.Buffer{}
		}
	}
}

// buffers returns the three buffers of c. errUnknown must be nil.
func buffers(c *tls.Conn) (rawInput *bytes.Buffer, input *bytes.Reader, hand *bytes.Buffer) {
	at := unsafe.Pointer(c)
	return (*bytes.Buffer)(unsafe.Add(at, known.rawInput)), (*bytes.Reader)(unsafe.Add(at, known.input)), (*bytes.Buffer)(unsafe.Add(at, known.hand))
}
