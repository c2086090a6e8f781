-- Nothing ever wrote into these tables or read them.

DROP TABLE relationships;
DROP TABLE entities;
