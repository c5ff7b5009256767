package main

// The certificates of public authorities, as Mozilla lists them. They serve systems without a list of their own: the
// image holds only the programs. A cloud's API has a certificate of one of these authorities. The system's own list, or
// SSL_CERT_FILE, has precedence.
import _ "golang.org/x/crypto/x509roots/fallback"
