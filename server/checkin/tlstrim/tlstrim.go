// Package tlstrim makes a TLS connection that waits for long smaller. crypto/tls
// keeps the buffers it reads into, as large as the largest message so far: of a
// server's connection the client's hello with its ML-KEM key, 3.6 KB. Go has no call
// to give them back, or to lend one for the next read, so this reaches into its
// fields; there is no other place where unsafe is needed.
//
// It relies on little. It writes to nothing but the headers of buffers that hold no
// byte, which crypto/tls makes anew as it did for its first read. It does nothing at
// all where tls.Conn is not made as this knows it.
package tlstrim

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"reflect"
	"runtime"
	"unsafe"
)

// places are where in a tls.Conn its read buffers are, in bytes.
type places struct{ rawInput, input, hand uintptr }

var known, errUnknown = find(reflect.TypeFor[tls.Conn]())

// find looks for the three buffers: fields of these names and types, one after the
// other. Anything else may be used in another way, too.
func find(conn reflect.Type) (places, error) {
	var p places
	index := -1
	for _, want := range []struct {
		name string
		of   reflect.Type
		at   *uintptr
	}{
		{"rawInput", reflect.TypeFor[bytes.Buffer](), &p.rawInput}, // records as they came
		{"input", reflect.TypeFor[bytes.Reader](), &p.input},       // what is left of one that was deciphered, in rawInput's memory
		{"hand", reflect.TypeFor[bytes.Buffer](), &p.hand},         // messages of the handshake
	} {
		f, ok := conn.FieldByName(want.name)
		switch {
		case !ok || len(f.Index) != 1:
			return places{}, fmt.Errorf("%s of %s has no field %s", conn, runtime.Version(), want.name)
		case f.Type != want.of:
			return places{}, fmt.Errorf("%s of %s has a field %s of type %s, want %s", conn, runtime.Version(), want.name, f.Type, want.of)
		case index >= 0 && f.Index[0] != index+1:
			return places{}, fmt.Errorf("%s of %s has its field %s in another place", conn, runtime.Version(), want.name)
		}
		index, *want.at = f.Index[0], f.Offset
	}
	return p, nil
}

// Unable says why Trim and Lend do nothing; nil: they do.
func Unable() error { return errUnknown }

// Lend lets c read records into b, which is c's until a Trim has taken it back. It
// should have room for a record: c makes a larger one if it needs that. Where c has
// something already, it keeps that, and b is not lent. Nobody else may read from c
// meanwhile.
func Lend(c *tls.Conn, b []byte) {
	if errUnknown != nil {
		return
	}
	if rawInput, input, _ := buffers(c); rawInput.Len() == 0 && input.Len() == 0 {
		*rawInput = *bytes.NewBuffer(b[:0])
	}
}

// Trim gives back the memory of c's read buffers that hold nothing. Those that hold
// something stay as they are, for nothing that c has received is lost; it returns
// false then, and what was lent remains c's. Nobody else may read from c meanwhile, or
// shake hands on it.
func Trim(c *tls.Conn) bool {
	if errUnknown != nil {
		return true
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
	return !Holds(c)
}

// Holds says whether c has received what nobody has read from it yet, or that it
// cannot be told. Nobody else may read from c meanwhile.
func Holds(c *tls.Conn) bool {
	if errUnknown != nil {
		return true
	}
	rawInput, input, hand := buffers(c)
	return rawInput.Len() > 0 || input.Len() > 0 || hand.Len() > 0
}

// buffers needs errUnknown to be nil.
func buffers(c *tls.Conn) (rawInput *bytes.Buffer, input *bytes.Reader, hand *bytes.Buffer) {
	at := unsafe.Pointer(c)
	return (*bytes.Buffer)(unsafe.Add(at, known.rawInput)), (*bytes.Reader)(unsafe.Add(at, known.input)), (*bytes.Buffer)(unsafe.Add(at, known.hand))
}
