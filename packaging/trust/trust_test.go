package trust

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"aead.dev/minisign"
	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/testing/require"
)

const (
	name    = "muster-agent-1.1.0-linux-amd64.tar.gz"
	oldName = "muster-agent-1.0.0-linux-amd64.tar.gz"
)

func newKey(t testing.TB) (PublicKey, PrivateKey) {
	t.Helper()
	pub, priv, err := GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pub, priv
}

func sign(t testing.TB, key PrivateKey, fileName, archive string) []byte {
	t.Helper()
	sig, err := key.Sign(fileName, strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestVerifyAcceptsATrustedSignature(t *testing.T) {
	pub, priv := newKey(t)
	other, _ := newKey(t)
	sig := sign(t, priv, name, "archive")
	s, err := Keyring{other, pub}.Verify(name, strings.NewReader("archive"), sig)
	if err != nil {
		t.Fatal(err)
	}
	if s.KeyID != pub.ID() || s.FileName != name || !strings.Contains(s.Comment, name) {
		t.Errorf("statement is %+v", s)
	}
	if again := sign(t, priv, name, "archive"); !bytes.Equal(sig, again) {
		t.Errorf("the same archive is signed as\n%s\nand as\n%s", sig, again)
	}
}

func TestVerifyRefusesBadSignatures(t *testing.T) {
	pub, priv := newKey(t)
	_, stranger := newKey(t)
	ring := Keyring{pub}
	good := sign(t, priv, name, "archive")
	line := func(sig []byte, n int) string { return strings.Split(string(sig), "\n")[n] }
	mix := func(sig []byte, n int, with string) []byte {
		lines := strings.Split(string(sig), "\n")
		lines[n] = with
		return []byte(strings.Join(lines, "\n"))
	}
	comment := func(c string) []byte {
		r := minisign.NewReader(strings.NewReader("archive"))
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		return r.SignWithComments(priv.key, c, "")
	}
	for _, tc := range []struct {
		name      string
		ring      Keyring
		asked     string
		archive   string
		signature []byte
		want      error
		says      string
	}{
		{"no key is trusted", nil, name, "archive", good, ErrNoKeys, "--trust-key"},
		{"a stranger's key", ring, name, "archive", sign(t, stranger, name, "archive"), ErrUntrustedKey, pub.ID()},
		{"changed archive", ring, name, "archivf", good, ErrBadSignature, name},
		{"longer archive", ring, name, "archive and more", good, ErrBadSignature, name},
		{"shorter archive", ring, name, "", good, ErrBadSignature, name},
		{"older version passed off as this one", ring, name, "old archive", sign(t, priv, oldName, "old archive"), ErrBadSignature, "made for " + oldName},
		{"comment of this one on a signature of another", ring, name, "archive", mix(good, 2, "trusted comment: file:"+oldName), ErrBadSignature, ""},
		{"comment of the older one, asked for so", ring, oldName, "archive", mix(good, 2, "trusted comment: file:"+oldName+"\thashed"), ErrBadSignature, ""},
		{"stranger's signature under a trusted key's id", ring, name, "archive", withKeyID(t, sign(t, stranger, name, "archive"), priv), ErrBadSignature, ""},
		{"comment without a file", ring, name, "archive", comment("timestamp:1700000000"), ErrBadSignature, "names no file"},
		{"comment with two files", ring, name, "archive", comment("file:" + oldName + "\tfile:" + name), ErrBadSignature, "names two files"},
		{"name as a part of a field", ring, name, "archive", comment("file:evil file:" + name), ErrBadSignature, "made for evil file:"},
		{"name with a folder", ring, name, "archive", comment("file:./" + name), ErrBadSignature, "made for ./"},
		{"signature without digest", ring, name, "archive", minisign.SignWithComments(priv.key, []byte("archive"), "file:"+name, ""), ErrBadSignature, "without a digest"},
		{"no signature", ring, name, "archive", nil, ErrBadSignature, "not a minisign file"},
		{"web page for a signature", ring, name, "archive", []byte("<html>\n<body>\n404\n</body>"), ErrBadSignature, "not a minisign file"},
		{"signature cut off", ring, name, "archive", []byte(line(good, 0) + "\n" + line(good, 1) + "\n"), ErrBadSignature, "not a minisign file"},
		{"endless signature", ring, name, "archive", append(bytes.Clone(good), bytes.Repeat([]byte("\n"), MaxSignatureSize)...), ErrBadSignature, "more than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := tc.ring.Verify(tc.asked, strings.NewReader(tc.archive), tc.signature)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q does not say %q", err, tc.says)
			}
			if s != (Statement{}) {
				t.Errorf("an error comes with the statement %+v", s)
			}
		})
	}
}

// withKeyID makes a signature claim to be by another key.
func withKeyID(t *testing.T, signature []byte, as PrivateKey) []byte {
	t.Helper()
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		t.Fatal(err)
	}
	s.KeyID = as.key.ID()
	return []byte(s.String())
}

func TestReadErrorIsNotABadSignature(t *testing.T) {
	pub, priv := newKey(t)
	sig := sign(t, priv, name, "archive")
	errDisk := errors.New("input/output error")
	_, err := Keyring{pub}.Verify(name, io.MultiReader(strings.NewReader("archive"), iotest.ErrReader(errDisk)), sig)
	if !errors.Is(err, errDisk) || errors.Is(err, ErrBadSignature) {
		t.Errorf("got %v", err)
	}
	if _, err := priv.Sign(name, iotest.ErrReader(errDisk)); !errors.Is(err, errDisk) {
		t.Errorf("signing: got %v", err)
	}
}

// Verify refuses any single changed bit of archive, name or signature, except in
// the untrusted comment.
func TestVerifyRefusesAnyChangedBit(t *testing.T) {
	pub, priv := newKey(t)
	ring := Keyring{pub}
	rapid.Check(t, func(t *rapid.T) {
		archive := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "archive")
		sig, err := priv.Sign(name, bytes.NewReader(archive))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ring.Verify(name, bytes.NewReader(archive), sig); err != nil {
			t.Fatal(err)
		}
		flip := func(b []byte, from, to int) []byte {
			b = bytes.Clone(b)
			b[rapid.IntRange(from, to-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			return b
		}
		if _, err := ring.Verify(name, bytes.NewReader(flip(archive, 0, len(archive))), sig); err == nil {
			t.Fatal("a changed archive passes")
		}
		if _, err := ring.Verify(string(flip([]byte(name), 0, len(name))), bytes.NewReader(archive), sig); err == nil {
			t.Fatal("a changed name passes")
		}
		// Base64 ignores the padding and the newline at the end of the last line.
		body := bytes.IndexByte(sig, '\n') + 1
		if changed := flip(sig, body, len(sig)-3); !sameSignature(changed, sig) {
			if _, err := ring.Verify(name, bytes.NewReader(archive), changed); err == nil {
				t.Fatalf("a changed signature passes:\n%s\nfor\n%s", changed, sig)
			}
		}
	})
}

func sameSignature(a, b []byte) bool {
	var x, y minisign.Signature
	return x.UnmarshalText(a) == nil && y.UnmarshalText(b) == nil && x.Equal(y)
}

func TestSignRefusesAmbiguousFileNames(t *testing.T) {
	_, priv := newKey(t)
	for _, bad := range []string{"", ".", "..", "a/b.zip", "/a.zip", `a\b.zip`, "a\tfile:b.zip", "a\nb.zip", "a\x00b"} {
		if _, err := priv.Sign(bad, strings.NewReader("archive")); err == nil {
			t.Errorf("Sign(%q) succeeds", bad)
		}
	}
}

func TestParsePublicKeyAcceptsBareKeysAndFiles(t *testing.T) {
	pub, _ := newKey(t)
	for form, text := range map[string]string{
		"bare":              pub.String(),
		"bare with spaces":  "  " + pub.String() + "\n",
		"file":              string(pub.File()),
		"file from Windows": strings.ReplaceAll(string(pub.File()), "\n", "\r\n"),
	} {
		got, err := ParsePublicKey(text)
		if err != nil || !got.Equal(pub) || got.ID() != pub.ID() || got.String() != pub.String() {
			t.Errorf("%s: got %v, %v, want %v", form, got, err, pub)
		}
	}
	if !strings.HasPrefix(pub.String(), "RW") || len(pub.ID()) != 16 {
		t.Errorf("key %s with id %s does not look like minisign's", pub, pub.ID())
	}
	for _, bad := range []string{"", "RW", "not a key", pub.String()[:50], "untrusted comment: x", "-----BEGIN PGP PUBLIC KEY BLOCK-----"} {
		if _, err := ParsePublicKey(bad); err == nil {
			t.Errorf("ParsePublicKey(%q) succeeds", bad)
		}
	}
}

func TestParseKeyringNamesTheInvalidKey(t *testing.T) {
	a, _ := newKey(t)
	b, _ := newKey(t)
	ring, err := ParseKeyring([]string{a.String(), b.String(), string(a.File())})
	if err != nil || len(ring) != 2 {
		t.Errorf("got %d keys, %v, want 2", len(ring), err)
	}
	if _, err := ParseKeyring([]string{a.String(), "rubbish"}); err == nil || !strings.Contains(err.Error(), "2 of 2") {
		t.Errorf("got %v", err)
	}
	if ring, err := ParseKeyring(nil); err != nil || len(ring) != 0 {
		t.Errorf("no keys: got %v, %v", ring, err)
	}
}

func TestPrivateKeyFiles(t *testing.T) {
	pub, priv := newKey(t)

	plain, err := UnsafePlainPrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(plain), "NOT ENCRYPTED") || NeedsPassword(plain) {
		t.Errorf("a plain key file does not say what it is:\n%s", plain)
	}
	got, err := DecryptPrivateKey("", plain)
	if err != nil || !got.Public().Equal(pub) {
		t.Errorf("plain: got %v", err)
	}

	if _, err := EncryptPrivateKey("", priv); !errors.Is(err, ErrNoPassword) {
		t.Errorf("an empty password: got %v, want ErrNoPassword", err)
	}
	if _, err := DecryptPrivateKey("", pub.File()); err == nil || !strings.Contains(err.Error(), ".pub") {
		t.Errorf("a public key for a private one: got %v", err)
	}
}

func TestEncryptedPrivateKeyNeedsItsPassword(t *testing.T) {
	pub, priv := newKey(t)
	locked, err := EncryptPrivateKey("correct horse", priv)
	if err != nil {
		t.Fatal(err)
	}
	if !NeedsPassword(locked) || bytes.Contains(locked, []byte("NOT ENCRYPTED")) {
		t.Errorf("the file is not one that needs a password:\n%s", locked)
	}
	if _, err := DecryptPrivateKey("", locked); !errors.Is(err, ErrNoPassword) {
		t.Errorf("without password: got %v", err)
	}
	got, err := DecryptPrivateKey("correct horse", locked)
	if err != nil || !got.key.Equal(priv.key) || !got.Public().Equal(pub) {
		t.Errorf("with password: got %v", err)
	}
}

// cheap is a cost for tests, since the race detector makes scrypt ten times slower.
const cheap = 10

func TestWrongPasswordIsRefused(t *testing.T) {
	_, priv := newKey(t)
	locked, err := lock("correct horse", priv, cheap)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecryptPrivateKey("correct horse", locked); err != nil || !got.key.Equal(priv.key) {
		t.Errorf("with password: got %v", err)
	}
	for _, word := range []string{"battery staple", "correct horse ", "Correct horse"} {
		if _, err := DecryptPrivateKey(word, locked); !errors.Is(err, ErrWrongPassword) {
			t.Errorf("%q: got %v, want ErrWrongPassword", word, err)
		}
	}
	again, err := lock("correct horse", priv, cheap)
	if err != nil || bytes.Equal(again, locked) {
		t.Errorf("locked twice, a key looks the same: the salt is not random (%v)", err)
	}
}

func TestMinisignOpensAnEncryptedKey(t *testing.T) {
	tool := require.Program(t, "minisign")
	pub, priv := newKey(t)
	dir := t.TempDir()
	archive, keyFile := filepath.Join(dir, name), filepath.Join(dir, "k.key")
	locked, err := lock("correct horse", priv, cheap)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, keyFile, locked)
	writeFile(t, archive, []byte("archive"))
	cmd := exec.Command(tool, "-S", "-s", keyFile, "-m", archive)
	cmd.Stdin = strings.NewReader("correct horse\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("minisign -S: %v\n%s", err, out)
	}
	if _, err := (Keyring{pub}).Verify(name, strings.NewReader("archive"), readFile(t, archive+SignatureSuffix)); err != nil {
		t.Error(err)
	}
}

func TestMinisignVerifiesOurSignatures(t *testing.T) {
	tool := require.Program(t, "minisign")
	pub, priv := newKey(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, name)
	writeFile(t, archive, []byte("archive"))
	writeFile(t, archive+SignatureSuffix, sign(t, priv, name, "archive"))
	writeFile(t, filepath.Join(dir, "release.pub"), pub.File())

	out, err := exec.Command(tool, "-V", "-p", filepath.Join(dir, "release.pub"), "-m", archive).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "file:"+name) {
		t.Errorf("minisign says %v:\n%s", err, out)
	}
	if out, err := exec.Command(tool, "-V", "-P", pub.String(), "-m", archive).CombinedOutput(); err != nil {
		t.Errorf("minisign with the bare key says %v:\n%s", err, out)
	}
	writeFile(t, archive, []byte("other"))
	if out, err := exec.Command(tool, "-V", "-P", pub.String(), "-m", archive).CombinedOutput(); err == nil {
		t.Errorf("minisign accepts another archive:\n%s", out)
	}
}

func TestVerifyAcceptsMinisignsKeysAndSignatures(t *testing.T) {
	tool := require.Program(t, "minisign")
	dir := t.TempDir()
	archive, pubFile, keyFile := filepath.Join(dir, name), filepath.Join(dir, "k.pub"), filepath.Join(dir, "k.key")
	writeFile(t, archive, []byte("archive"))
	if out, err := exec.Command(tool, "-G", "-W", "-p", pubFile, "-s", keyFile).CombinedOutput(); err != nil {
		t.Fatalf("minisign -G: %v\n%s", err, out)
	}
	if out, err := exec.Command(tool, "-S", "-s", keyFile, "-m", archive).CombinedOutput(); err != nil {
		t.Fatalf("minisign -S: %v\n%s", err, out)
	}
	ring, err := ParseKeyring([]string{string(readFile(t, pubFile))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ring.Verify(name, strings.NewReader("archive"), readFile(t, archive+SignatureSuffix))
	if err != nil || s.FileName != name {
		t.Errorf("got %+v, %v", s, err)
	}
	priv, err := DecryptPrivateKey("", readFile(t, keyFile))
	if err != nil || !priv.Public().Equal(ring[0]) {
		t.Errorf("the tool's private key: %v", err)
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzVerify covers arbitrary signature files, since they come from the network.
func FuzzVerify(f *testing.F) {
	pub, priv := newKey(f)
	good := sign(f, priv, name, "archive")
	f.Add(good)
	f.Add([]byte("untrusted comment: \n\ntrusted comment: \n"))
	f.Fuzz(func(t *testing.T, signature []byte) {
		_, err := Keyring{pub}.Verify(name, strings.NewReader("archive"), signature)
		if err == nil && !sameSignature(signature, good) {
			t.Errorf("passes:\n%s", signature)
		}
	})
}
