package tlstrim

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestConnOfThisGoHasTheExpectedFields(t *testing.T) {
	t.Parallel()
	if err := Unable(); err != nil {
		t.Fatalf("parked agents take twice the memory with %s: %v\n"+
			"Read Conn's fields in its crypto/tls/conn.go, and adapt this package; or remove it, if Go gives the memory back by now (golang.org/issue/81348)", runtime.Version(), err)
	}
}

func TestFindRefusesOtherLayouts(t *testing.T) {
	t.Parallel()
	type embedded struct{ rawInput bytes.Buffer } //nolint:unused // find searches for it
	for _, c := range []struct {
		name string
		conn any
		want string // "" is known
	}{
		{name: "as it is", conn: struct {
			before   int
			rawInput bytes.Buffer
			input    bytes.Reader
			hand     bytes.Buffer
		}{}},
		{name: "no handshake buffer", want: "has no field hand", conn: struct {
			rawInput bytes.Buffer
			input    bytes.Reader
		}{}},
		{name: "a buffer that is somewhere else", want: "has no field rawInput", conn: struct {
			embedded
			input bytes.Reader
			hand  bytes.Buffer
		}{}},
		{name: "another type", want: "field input of type bytes.Buffer, want bytes.Reader", conn: struct {
			rawInput, input, hand bytes.Buffer
		}{}},
		{name: "a pointer", want: "field hand of type *bytes.Buffer", conn: struct {
			rawInput bytes.Buffer
			input    bytes.Reader
			hand     *bytes.Buffer
		}{}},
		{name: "another order", want: "field input in another place", conn: struct {
			rawInput, hand bytes.Buffer
			input          bytes.Reader
		}{}},
		{name: "something new between", want: "field hand in another place", conn: struct {
			rawInput bytes.Buffer
			input    bytes.Reader
			owner    *int
			hand     bytes.Buffer
		}{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := find(reflect.TypeOf(c.conn))
			switch {
			case c.want == "" && (err != nil || p.rawInput == 0 || p.input <= p.rawInput || p.hand <= p.input):
				t.Errorf("offsets %v, error %v", p, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), runtime.Version())):
				t.Errorf("error %v, want %q and Go's version", err, c.want)
			}
		})
	}
}

// pair is a TLS connection whose server receives the client's bytes when the test
// delivers them. A read that finds none times out.
type pair struct {
	client, server *tls.Conn
	under          *transit // the client's
}

// transit is the client's end of the connection. While held, it buffers writes.
type transit struct {
	net.Conn
	held bool
	// kept is on its way, arrived the server may read.
	kept, arrived bytes.Buffer
}

func (tr *transit) Write(p []byte) (int, error) {
	if !tr.held {
		return tr.Conn.Write(p)
	}
	return tr.kept.Write(p)
}

// deliver lets the server have up to n bytes.
func (tr *transit) deliver(n int) { tr.arrived.Write(tr.kept.Next(n)) }

// serverEnd is the server's end.
type serverEnd struct {
	net.Conn
	of *transit
}

func (f *serverEnd) Read(p []byte) (int, error) {
	if !f.of.held {
		return f.Conn.Read(p)
	}
	if f.of.arrived.Len() == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return f.of.arrived.Read(p)
}

var testCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// open shakes hands, and exchanges a byte each way.
func open(t rapid.TB, version uint16) *pair {
	t.Helper()
	certificate, err := testCertificate()
	if err != nil {
		t.Fatal(err)
	}
	near, there := net.Pipe()
	tr := &transit{Conn: near}
	l := &pair{
		under:  tr,
		client: tls.Client(tr, &tls.Config{InsecureSkipVerify: true, MaxVersion: version}),
		server: tls.Server(&serverEnd{Conn: there, of: tr}, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: version}),
	}
	greeted := make(chan error, 1)
	go func() {
		var b [1]byte
		_, err := io.ReadFull(l.server, b[:])
		if err == nil {
			_, err = l.server.Write(b[:])
		}
		greeted <- err
	}()
	_, err = l.client.Write([]byte("!"))
	if err == nil {
		_, err = io.ReadFull(l.client, make([]byte, 1))
	}
	if err = errors.Join(err, <-greeted); err != nil {
		t.Fatal(err)
	}
	tr.held = true
	return l
}

func (l *pair) close() {
	l.under.Close()
	l.server.NetConn().Close()
}

// ask sends a request, which the server reads.
func (l *pair) ask(t *testing.T, request []byte) {
	t.Helper()
	if _, err := l.client.Write(request); err != nil {
		t.Fatal(err)
	}
	l.under.deliver(1 << 20)
	got := make([]byte, len(request))
	if _, err := io.ReadFull(l.server, got); err != nil || !bytes.Equal(got, request) {
		t.Fatalf("the request of %d bytes: %v", len(request), err)
	}
}

// spare is how much memory the buffers have.
func (l *pair) spare() int {
	rawInput, _, hand := buffers(l.server)
	return rawInput.Cap() + hand.Cap()
}

func TestTrimFreesBuffersOfAUsableConnection(t *testing.T) {
	t.Parallel()
	l := open(t, tls.VersionTLS13)
	defer l.close()
	if n := l.spare(); n < 3000 {
		t.Errorf("the buffers have %d bytes after the handshake: is this package of use still?", n)
	}
	for i := range 5 {
		Trim(l.server)
		_, input, _ := buffers(l.server)
		if n := l.spare(); n != 0 || input.Size() != 0 {
			t.Errorf("the buffers have %d and %d bytes after Trim", n, input.Size())
		}
		request := bytes.Repeat([]byte{byte(i)}, 1000*(i+1))
		l.ask(t, request)
		answered := make(chan error, 1)
		go func() {
			_, err := l.server.Write(request)
			answered <- err
		}()
		got := make([]byte, len(request))
		_, err := io.ReadFull(l.client, got)
		if err = errors.Join(err, <-answered); err != nil || !bytes.Equal(got, request) {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
}

func TestTrimKeepsBuffersThatHoldBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		raw, read, hand string
	}{
		{name: "a record in pieces", raw: "\x17\x03\x03"},
		{name: "what was deciphered and not read", read: "POST"},
		{name: "a message of the handshake in pieces", hand: "\x18\x00"},
		{name: "all three", raw: "\x17", read: "P", hand: "\x18"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := tls.Server(nil, nil)
			rawInput, input, hand := buffers(conn)
			for b, s := range map[*bytes.Buffer]string{rawInput: c.raw, hand: c.hand} {
				b.Grow(100)
				b.WriteString(s)
			}
			input.Reset([]byte(c.read))
			Trim(conn)
			if rawInput.String() != c.raw || hand.String() != c.hand || input.Len() != len(c.read) {
				t.Errorf("%q, %d bytes and %q are left", rawInput.String(), input.Len(), hand.String())
			}
			if c.raw == "" && rawInput.Cap() != 0 || c.hand == "" && hand.Cap() != 0 {
				t.Error("an empty one has kept its memory")
			}
		})
	}
}

// However the bytes arrive and however few are read, a Trim in between neither loses
// nor repeats any.
func TestTrimLosesNoReceivedBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, rapid.SampledFrom([]uint16{tls.VersionTLS12, tls.VersionTLS13}).Draw(t, "version"))
		defer l.close()
		l.under.Conn.Close() // so that an alert of the server does not wait for a reader
		var sent, got []byte
		read := func(most int) (timeUp bool) {
			b := make([]byte, most)
			n, err := l.server.Read(b)
			got = append(got, b[:n]...)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("after %d bytes of %d: %v", len(got), len(sent), err)
			}
			return err != nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				b := rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "bytes")
				if _, err := l.client.Write(b); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, b...)
			},
			"deliver": func(t *rapid.T) { l.under.deliver(rapid.IntRange(1, 4000).Draw(t, "bytes")) },
			"read":    func(t *rapid.T) { read(rapid.IntRange(1, 4000).Draw(t, "bytes")) },
			"trim":    func(*rapid.T) { Trim(l.server) },
			"":        func(*rapid.T) {},
		})
		l.under.deliver(1 << 30)
		for !read(1 << 14) {
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes were sent, and %d read", len(sent), len(got))
		}
	})
}
