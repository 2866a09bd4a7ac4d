package flightconn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"slices"
)

// isolateKeys is certificates with their keys isolated, where those are the user's: of a key
// management service, or of a hardware module. The handshake asks them.
func isolateKeys(certificates []tls.Certificate) []tls.Certificate {
	certificates = slices.Clone(certificates)
	for i := range certificates {
		certificates[i].PrivateKey = isolateKey(certificates[i].PrivateKey)
	}
	return certificates
}

// isolateKey is key, isolated. Keys of the system's are left as they are.
func isolateKey(key crypto.PrivateKey) crypto.PrivateKey {
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return key
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return key
	}
	own := isolatedKey{signer}
	if messages, ok := key.(crypto.MessageSigner); ok {
		return isolatedMessageKey{own, messages}
	}
	return own
}

// isolatedKey is a key of the user's. One that fails to tell its public key has none, so that
// its certificate fits no server.
type isolatedKey struct{ signer crypto.Signer }

const keysName = "Config.TLS: the private key of a certificate"

// Public is part of crypto.Signer.
func (k isolatedKey) Public() crypto.PublicKey {
	public, _ := callUser(keysName, func() (crypto.PublicKey, error) { return k.signer.Public(), nil })
	return public
}

// Sign is part of crypto.Signer.
func (k isolatedKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return callUser(keysName, func() ([]byte, error) { return k.signer.Sign(rand, digest, opts) })
}

// isolatedMessageKey is one that is given the message, which TLS does where it can.
type isolatedMessageKey struct {
	isolatedKey
	messages crypto.MessageSigner
}

// SignMessage is part of crypto.MessageSigner.
func (k isolatedMessageKey) SignMessage(rand io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	return callUser(keysName, func() ([]byte, error) { return k.messages.SignMessage(rand, message, opts) })
}
