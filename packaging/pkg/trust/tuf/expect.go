package tuf

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// Expect implements [trust.Authority] from the repository's current targets.
func (c *Client) Expect(ctx context.Context, fileName string, beside trust.Fetch) (*trust.Expectation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, err := c.refresh(ctx, beside)
	if err != nil {
		return nil, fmt.Errorf("%s may not be installed: %w", fileName, err)
	}
	signed, err := contents(ch.targetsType())
	if err != nil {
		return nil, err
	}
	return signed.Expect(ch.now, trust.Statement{
		KeyID: shortIDs(ch.signers()), FileName: fileName,
		Comment: fmt.Sprintf("targets %s under root %s, signed by %s", number(signed.Version), number(ch.rootType().Version), labels(ch.signers())),
	})
}

// Expect returns what the targets say about the archive that statement names. The caller has
// verified the targets.
func (c Contents) Expect(now time.Time, statement trust.Statement) (*trust.Expectation, error) {
	target, err := c.find(statement.FileName)
	if err != nil {
		return nil, err
	}
	limits := c.LimitsOf(target.Component)
	return &trust.Expectation{
		Size: target.Size, Unpacked: target.Unpacked, SHA512: target.SHA512, Archive: "sha512:" + target.SHA512, Floor: limits.Floor,
		Downgrade: limits.AllowsDowngrade(target.Version, now),
		Verify: func(archive io.Reader) (trust.Statement, error) {
			if err := target.verify(archive); err != nil {
				return trust.Statement{}, err
			}
			return statement, nil
		},
	}, nil
}

// floorTimeout bounds a refresh for [Client.Floor]: a rollback, for which it is needed, must not
// wait long for a server that does not answer.
const floorTimeout = 20 * time.Second

// Floor implements [trust.Authority].
func (c *Client) Floor(ctx context.Context, component string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, floorTimeout)
	defer cancel()
	l := c.local()
	ch, err := c.refresh(ctx, nil)
	if err == nil {
		if signed, cerr := contents(ch.targetsType()); cerr == nil {
			return signed.LimitsOf(component).Floor
		}
	}
	l.log.Warn("the publishers' current floor is not known, the last one that this host has verified is used", "err", err)
	return l.floor(component)
}

// floor returns the floor in the stored targets, whether they have expired or not.
func (l local) floor(component string) string {
	data := l.read(RoleTargets)
	root, err := l.trustedRoot()
	if data == nil || err != nil {
		return ""
	}
	ch, err := startChain(root, time.Time{})
	if err != nil {
		return ""
	}
	meta, err := decodeTargets(data)
	if err == nil {
		err = ch.trusted.Root.VerifyDelegate(metadata.TARGETS, meta)
	}
	if err != nil {
		l.logDamaged(RoleTargets, err)
		return ""
	}
	signed, err := contents(&meta.Signed)
	if err != nil {
		return ""
	}
	return signed.LimitsOf(component).Floor
}

func shortIDs(keys []PublicKey) string {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.Short()
	}
	return strings.Join(ids, ",")
}

func (c Contents) find(fileName string) (Target, error) {
	unknown := &UnknownTargetError{FileName: fileName}
	for _, t := range c.Targets {
		if t.FileName() == fileName {
			return t, nil
		}
		if t.differsInVersion(fileName) {
			unknown.Versions = append(unknown.Versions, t.Version)
		}
	}
	return Target{}, unknown
}

// differsInVersion reports whether a name is that of the target with another version.
func (t Target) differsInVersion(fileName string) bool {
	before, after, _ := strings.Cut(t.FileName(), t.Version)
	version, ok := strings.CutPrefix(fileName, before)
	if version, ok2 := strings.CutSuffix(version, after); ok && ok2 {
		_, err := manifest.ParseVersion(version)
		return err == nil
	}
	return false
}

// verify reads at most one byte more than t.Size.
func (t Target) verify(archive io.Reader) error {
	digest := sha512.New()
	n, err := io.Copy(digest, io.LimitReader(archive, t.Size+1))
	switch sum := hex.EncodeToString(digest.Sum(nil)); {
	case err != nil:
		return fmt.Errorf("read %s: %w", t.FileName(), err)
	case n > t.Size:
		return fmt.Errorf("%s %w: it has more than the %d bytes the publishers signed", t.FileName(), ErrMismatch, t.Size)
	case n < t.Size:
		return fmt.Errorf("%s %w: it has %d bytes, the publishers signed %d; the download may be incomplete", t.FileName(), ErrMismatch, n, t.Size)
	case sum != t.SHA512:
		return fmt.Errorf("%s %w: its SHA-512 is %s…, the publishers signed %s…: it was changed or damaged on the way", t.FileName(), ErrMismatch, sum[:16], t.SHA512[:16])
	}
	return nil
}
