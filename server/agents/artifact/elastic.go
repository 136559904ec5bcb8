package artifact

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
)

// Suffixes of the files beside an archive of Elastic's. Its agents download all three.
const (
	SHA512Suffix  = ".sha512"
	OpenPGPSuffix = ".asc"
)

// MaxOpenPGP bounds a signature or a public key in bytes. Elastic's have 500 and 1,700.
const MaxOpenPGP = 64 << 10

// ElasticProof is what is beside an archive of Elastic's.
type ElasticProof struct {
	SHA512  string // in hexadecimal digits
	OpenPGP []byte // the .asc file
}

// elasticName matches the names of Elastic's archives.
var elasticName = regexp.MustCompile(`^elastic-agent-(.+)-(linux|darwin|windows)-(x86_64|arm64|aarch64|x86)\.(tar\.gz|zip)$`)

// elasticArches are Go's names of the architectures in them.
var elasticArches = map[string]string{"x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64", "x86": "386"}

// IsElastic reports whether an archive of this name is Elastic's.
func IsElastic(file string) bool { return strings.HasPrefix(file, "elastic-agent-") }

// elasticPackage returns what the name of an archive of Elastic's states.
func elasticPackage(file string) (fleet.Package, error) {
	refuse := func(format string, args ...any) (fleet.Package, error) {
		return fleet.Package{}, fleet.FieldError("path.file", "is %q: %s", file, fmt.Sprintf(format, args...))
	}
	m := elasticName.FindStringSubmatch(file)
	if m == nil {
		return refuse("want Elastic's own name, such as elastic-agent-8.15.5-linux-x86_64.tar.gz: its agents ask for that one")
	}
	format := "tar.gz"
	if m[2] == "windows" {
		format = "zip"
	}
	if m[4] != format {
		return refuse("Elastic's packages for %s are %s files", m[2], format)
	}
	if _, err := manifest.ParseVersion(m[1]); err != nil {
		return refuse("%v", err)
	}
	return fleet.Package{
		File: file, Version: m[1], Snapshot: strings.Contains(m[1], "-SNAPSHOT"), OS: m[2], Arch: elasticArches[m[3]], Maker: fleet.MakerElastic,
	}, nil
}

// PushElastic publishes an archive of Elastic's under its own name, completely or not at
// all. Elastic Agents install it, Muster's never do.
func (s *Service) PushElastic(ctx context.Context, file string, proof ElasticProof, body io.Reader, actor string) (fleet.Package, error) {
	p, err := elasticPackage(file)
	if err != nil {
		return p, err
	}
	if sum, err := hex.DecodeString(proof.SHA512); err != nil || len(sum) != 64 {
		return p, fleet.FieldError("header.Muster-Sha512", "want the 128 hexadecimal digits in %s%s", file, SHA512Suffix)
	}
	switch n := len(proof.OpenPGP); {
	case n == 0:
		return p, fleet.FieldError("header.Muster-Openpgp-Signature", "is missing: send %s%s in base64, which agents verify", file, OpenPGPSuffix)
	case n > MaxOpenPGP:
		return p, fleet.FieldError("header.Muster-Openpgp-Signature", "has %d bytes, want at most %d", n, MaxOpenPGP)
	}
	keys, err := s.openPGPKeys(ctx)
	if err != nil {
		return p, err
	}
	if len(keys) == 0 {
		return p, fleet.Errorf(fleet.Invalid, "the server knows no OpenPGP key yet: add Elastic's, from https://artifacts.elastic.co/GPG-KEY-elastic-agent, with `muster package trust KEY.asc`")
	}
	p.OpenPGP = proof.OpenPGP
	return s.push(ctx, p, body, actor, func(path string, p *fleet.Package) error {
		if !strings.EqualFold(p.SHA512, proof.SHA512) {
			return fleet.FieldError("header.Muster-Sha512", "is %s…, but the archive has %s…: it was changed or did not arrive whole", proof.SHA512[:16], p.SHA512[:16])
		}
		return s.verifyElastic(ctx, keys, path, p)
	})
}

// verifyElastic checks the signature, and the manifest against the name.
func (s *Service) verifyElastic(ctx context.Context, keys openpgp.EntityList, path string, p *fleet.Package) error {
	f, err := s.Disk.OpenFile("push", path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	signer, err := openpgp.CheckArmoredDetachedSignature(keys, f, bytes.NewReader(p.OpenPGP), &packet.Config{Time: s.Now.UTC})
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return fleet.Errorf(fleet.Invalid, "%s%s was made with a key that the server does not know: add it with `muster package trust KEY.asc` if it is Elastic's", p.File, OpenPGPSuffix)
	case err != nil:
		return fleet.Errorf(fleet.Invalid, "%s%s: %w", p.File, OpenPGPSuffix, err)
	}
	p.KeyID = signer.PrimaryKey.KeyIdString()
	contents, err := install.InspectElastic(ctx, s.Disk, path)
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "%s: %w", p.File, err)
	}
	pkg := contents.Manifest.Package
	base, build, _ := strings.Cut(strings.Replace(p.Version, "-SNAPSHOT", "", 1), "+")
	says, saysBuild, _ := strings.Cut(pkg.Version, "+")
	switch want := strings.TrimSuffix(strings.TrimSuffix(p.File, ".zip"), ".tar.gz"); {
	case contents.Top != want:
		return fleet.FieldError("path.file", "is %s, but its files are in the folder %s: agents look for them in %s", p.File, contents.Top, want)
	case says != base || saysBuild != "" && saysBuild != build || pkg.Snapshot != p.Snapshot:
		return fleet.FieldError("path.file", "is %s, but by its manifest the package is version %s", p.File, pkg.FullVersion())
	case pkg.OS != "" && pkg.OS != p.OS || pkg.Arch != "" && pkg.Arch != p.Arch:
		return fleet.FieldError("path.file", "is %s, but its program is for %s/%s", p.File, pkg.OS, pkg.Arch)
	}
	p.Hash = pkg.Hash
	return nil
}

// ServeElastic responds to a GET or HEAD of an archive of Elastic's, with ranges, or of
// its .sha512 or .asc file.
func (s *Service) ServeElastic(w http.ResponseWriter, r *http.Request, name string) error {
	file, sum := strings.CutSuffix(name, SHA512Suffix)
	file, signature := strings.CutSuffix(file, OpenPGPSuffix)
	p, err := s.published(r.Context(), file)
	if err == nil && p.Maker != fleet.MakerElastic || err != nil && fleet.KindOf(err) == fleet.NotFound {
		return fleet.Errorf(fleet.NotFound, "no package %s of Elastic's is published: publish it with `muster package push --elastic`", file)
	}
	text := p.OpenPGP
	switch {
	case err != nil:
		return err
	case sum && signature:
		return fleet.Errorf(fleet.NotFound, "there is no %s", name)
	case sum:
		text = []byte(p.SHA512 + "  " + p.File + "\n") // as sha512sum writes it
	case !signature:
		return s.serveBytes(w, r, p)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(text)
	return nil
}

// OpenPGPKeys returns the OpenPGP keys that the server accepts Elastic's packages of, as
// one armored block.
func (s *Service) OpenPGPKeys(ctx context.Context) ([]byte, error) {
	var keys openpgp.EntityList
	err := s.Health.Call(ctx, func(ctx context.Context) (err error) {
		keys, err = s.openPGPKeys(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fleet.Errorf(fleet.NotFound, "the server has no OpenPGP key: add Elastic's with `muster package trust KEY.asc`")
	}
	return armored(keys)
}

func armored(keys openpgp.EntityList) ([]byte, error) {
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if err := k.Serialize(w); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	text.WriteByte('\n')
	return text.Bytes(), err
}

func (s *Service) openPGPKeys(ctx context.Context) (openpgp.EntityList, error) {
	list, err := s.PublisherKeys(ctx)
	if err != nil {
		return nil, err
	}
	var keys openpgp.EntityList
	for _, k := range list {
		e, err := parseOpenPGP(k.PublicKey)
		if err != nil {
			return nil, fmt.Errorf("publisher key %s: %w", k.ID, err)
		}
		keys = append(keys, e)
	}
	return keys, nil
}

// parseOpenPGP parses one armored public key.
func parseOpenPGP(text string) (*openpgp.Entity, error) {
	if len(text) > MaxOpenPGP {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(text), MaxOpenPGP)
	}
	if strings.Contains(text, "-----BEGIN "+openpgp.PrivateKeyType) {
		return nil, errors.New("is a private key, which belongs on no server: export the public one with `gpg --armor --export`")
	}
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("is not an OpenPGP public key: %w", err)
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("has %d OpenPGP keys: add each by itself", len(keys))
	}
	return keys[0], nil
}
