package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Keys are public keys by their KeyID.
type Keys map[string]ed25519.PublicKey

// Signer signs proofs.
type Signer struct {
	Key ed25519.PrivateKey
	By  string // the controller's identity
}

// Keys returns the signer's public key.
func (s Signer) Keys() Keys {
	own := s.Key.Public().(ed25519.PublicKey)
	return Keys{KeyID(own): own}
}

// The types of PEM blocks in files of keys, as openssl writes them.
const (
	privateBlock = "PRIVATE KEY" // PKCS #8
	publicBlock  = "PUBLIC KEY"  // PKIX
)

// sinceHeader is the header of a public key's block that says since when the key signs, in RFC 3339.
const sinceHeader = "Since"

// KeyID returns the name of a public key: 16 hex digits of its hash.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// ParseSigner reads the file of a controller: one private key. Public keys in it are ignored.
func ParseSigner(text []byte) (Signer, error) {
	var s Signer
	if _, err := parseBlocks(text, &s.Key); err != nil {
		return Signer{}, err
	}
	if s.Key == nil {
		return Signer{}, errors.New("no PEM block of type " + privateBlock)
	}
	return s, nil
}

// ParseKeys reads a file of public keys. A private key in it is an error: the file is meant for everyone.
func ParseKeys(text []byte) (Keys, error) { return parseBlocks(text, nil) }

// parseBlocks reads all PEM blocks. It stores the private key in private, and refuses one if private is nil.
func parseBlocks(text []byte, private *ed25519.PrivateKey) (Keys, error) {
	keys := Keys{}
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			if left := strings.TrimSpace(string(text)); left != "" {
				return nil, fmt.Errorf("after PEM block %d: %d bytes are no PEM block", n-1, len(left))
			}
			return keys, nil
		}
		text = rest
		switch {
		case block.Type == privateBlock && private != nil && *private == nil:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			own, is := key.(ed25519.PrivateKey)
			if err != nil || !is {
				return nil, fmt.Errorf("PEM block %d is no private key of type ed25519", n)
			}
			*private = own
		case block.Type == publicBlock:
			key, err := x509.ParsePKIXPublicKey(block.Bytes)
			public, is := key.(ed25519.PublicKey)
			if err != nil || !is {
				return nil, fmt.Errorf("PEM block %d is no public key of type ed25519", n)
			}
			keys[KeyID(public)] = public
		default:
			return nil, fmt.Errorf("PEM block %d of type %q is not expected here", n, block.Type)
		}
	}
}

// EncodeKey returns the PEM block of a public key that signs since a time.
func EncodeKey(key ed25519.PublicKey, since time.Time) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // only for keys of other types
	}
	return pem.EncodeToMemory(&pem.Block{
		Type: publicBlock, Headers: map[string]string{sinceHeader: since.UTC().Format(time.RFC3339)}, Bytes: der,
	})
}

// EncodeSigner returns the file of a controller that signs with key.
func EncodeSigner(key ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err) // only for keys of other types
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
}

// PublicKey is one key of a file of public keys.
type PublicKey struct {
	ID    string
	Since string // as the file has it; "" if it does not say
	Block []byte
}

// ListKeys returns the keys of a file of public keys in the file's order, each with its block.
func ListKeys(text []byte) ([]PublicKey, error) {
	if _, err := ParseKeys(text); err != nil {
		return nil, err
	}
	var out []PublicKey
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		key, _ := x509.ParsePKIXPublicKey(block.Bytes)
		out = append(out, PublicKey{
			ID: KeyID(key.(ed25519.PublicKey)), Since: block.Headers[sinceHeader], Block: pem.EncodeToMemory(block),
		})
	}
	return out, nil
}
