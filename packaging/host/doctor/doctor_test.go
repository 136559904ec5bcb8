package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func certificate(t *testing.T, from, to time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fleet"}, DNSNames: []string{"fleet.example.com"}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFindings(t *testing.T) {
	day := 24 * time.Hour
	good := certificate(t, now.Add(-day), now.Add(90*day))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := func(address string) Finding { _, _, f := Port(address); return f }
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got   Finding
		level Level
		words string // in what was found or what mends it
	}{
		"clocks that agree":         {Clock(now, now.Add(20*time.Second), "the server's"), OK, "agrees with the server's"},
		"clocks that differ":        {Clock(now, now.Add(-time.Minute), "the server's"), Warning, "differs by 1m0s"},
		"clocks that differ much":   {Clock(now, now.Add(time.Hour), "the server's"), Problem, "timedatectl set-ntp true"},
		"enough space":              {Space("/data", 300<<20, 200<<20, "an upgrade"), OK, "300 MiB free"},
		"little space":              {Space("/data", 100<<20, 200<<20, "an upgrade"), Problem, "df -h /data"},
		"a valid certificate":       {Certificate(good, "fleet.example.com", now, "renew"), OK, "valid until 2027-02-25"},
		"one for another name":      {Certificate(good, "other.example.com", now, "renew"), Problem, "does not name other.example.com, but fleet.example.com"},
		"one that ends soon":        {Certificate(certificate(t, now.Add(-day), now.Add(3*day)), "", now, "renew"), Warning, "ends in 3 days"},
		"one that has ended":        {Certificate(certificate(t, now.Add(-2*day), now.Add(-day)), "", now, "renew"), Problem, "renew"},
		"one that has not begun":    {Certificate(certificate(t, now.Add(day), now.Add(2*day)), "", now, "renew"), Problem, "look at the clock"},
		"a folder":                  {Folder(t.TempDir()), OK, "can be written to"},
		"no folder":                 {Folder(filepath.Join(t.TempDir(), "none")), Problem, "sudo mkdir -p"},
		"a file for a folder":       {Folder(file), Problem, "is no folder"},
		"a port that is taken":      {port(taken.Addr().String()), Problem, "is taken by"},
		"an address of another one": {port("192.0.2.1:0"), Problem, "choose an address of this machine"},
	} {
		if c.got.Level != c.level || !strings.Contains(c.got.Found+"\n"+c.got.Mend, c.words) {
			t.Errorf("%s: %+v, want %s with %q", name, c.got, c.level, c.words)
		}
		if (c.got.Level == OK) != (c.got.Mend == "") {
			t.Errorf("%s: %+v: what mends it belongs to problems and warnings, and to each of them", name, c.got)
		}
	}
}

func TestFindingsAreInTheOrderOfTheChecks(t *testing.T) {
	first := make(chan struct{})
	found := Run(t.Context(), []Check{
		{"slow", func(context.Context) Finding { <-first; return Bad("mend it", "it is broken") }},
		{"nothing", func(context.Context) Finding { return Finding{} }},
		{"quick", func(context.Context) Finding { close(first); return Good("all is well") }},
	})
	var text strings.Builder
	if err := Print(&text, found, false); err != nil {
		t.Fatal(err)
	}
	want := "problem  slow   it is broken\n                → mend it\nok       quick  all is well\n"
	if text.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", text.String(), want)
	}
	if err := Err(found); err == nil || err.Error() != "1 problem was found" {
		t.Errorf("the error is %v", err)
	}
}

func TestAHangingCheckIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		begin := time.Now()
		found := Run(t.Context(), []Check{
			{"disk", func(context.Context) Finding { <-hang; return Good("never") }},
			{"server", func(ctx context.Context) Finding { <-ctx.Done(); return Bad("open the firewall", "it does not answer") }},
		})
		if len(found) != 2 || found[0].Level != Problem || !strings.Contains(found[0].Found, "did not end within 12s") || found[1].Mend != "open the firewall" {
			t.Errorf("found %+v", found)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
