package authority_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The server's certificate stays over its starts, so that it does not begin after the time of a host
// whose clock is slow. A certificate that no longer fits is replaced.
func TestCertificateIsKeptOverStarts(t *testing.T) {
	const month = 30 * 24 * time.Hour
	for _, row := range []struct {
		name   string
		later  time.Duration // the second start
		names  []string
		change func(t *testing.T, dir string)
		kept   bool
	}{
		{name: "at once", kept: true},
		{name: "weeks later", later: 2 * month, kept: true},
		{name: "with the clock set back a little", later: -2 * time.Hour, kept: true},
		{name: "with the clock set back years", later: -100 * month},
		{name: "shortly before it expires", later: 365*24*time.Hour - time.Hour},
		{name: "with another name", names: []string{"other.example", "10.1.2.3"}},
		{name: "with one name more", names: []string{"muster.example", "10.1.2.3", "::1"}},
		{name: "with a damaged file", change: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "server.pem"), []byte("torn"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "of another CA", change: func(t *testing.T, dir string) {
			other := t.TempDir()
			leaf(t, open(t, other, nil, "muster.example", "10.1.2.3"))
			data, err := os.ReadFile(filepath.Join(other, "server.pem"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "server.pem"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, begin := t.TempDir(), time.Now()
			at := func(d time.Duration) func() time.Time { return func() time.Time { return begin.Add(d) } }
			names := []string{"muster.example", "10.1.2.3"}
			first := leaf(t, open(t, dir, at(0), names...))
			if slow := begin.Add(-20 * time.Hour); slow.Before(first.NotBefore) {
				t.Errorf("the certificate begins at %s, after the time of a slow host", first.NotBefore)
			}
			if life := first.NotAfter.Sub(first.NotBefore); life > 398*24*time.Hour {
				t.Errorf("it is valid for %s, longer than browsers accept", life)
			}
			if fi, err := os.Stat(filepath.Join(dir, "server.pem")); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("the file of the key: %v, %v", fi, err)
			}
			if row.change != nil {
				row.change(t, dir)
			}
			if row.names != nil {
				names = row.names
			}
			again := leaf(t, open(t, dir, at(row.later), names...))
			if again.Equal(first) != row.kept {
				t.Errorf("kept: %v, want %v", again.Equal(first), row.kept)
			}
			if third := leaf(t, open(t, dir, at(row.later), names...)); !third.Equal(again) && row.later >= 0 {
				t.Error("the new certificate is not kept")
			}
		})
	}
}
